import { describe, expect, it } from "vitest";
import { activeGoal } from "./goal";

describe("a goal", () => {
  it("is shown by its summary, with the objective behind it", () => {
    const goal = { status: "active", objective: "Move all hosts", ui_summary: "Move" };

    expect(activeGoal(goal)).toEqual({ summary: "Move", objective: "Move all hosts" });
    expect(activeGoal({ ...goal, ui_summary: "" })?.summary).toBe("Move all hosts");
  });

  it("that is over, empty or something else is not shown", () => {
    for (const value of [null, "text", 3, [], { status: "completed", objective: "x" }]) {
      expect(activeGoal(value)).toBeNull();
    }
    expect(activeGoal({ status: "active", objective: " " })).toBeNull();
  });
});
