import { Component, type ReactNode } from "react";
import { strings } from "../strings";

/** A fault in drawing must not look like an empty chat. */
export class Fault extends Component<{ children: ReactNode }, { failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError() {
    return { failed: true };
  }

  override render() {
    if (!this.state.failed) return this.props.children;
    return (
      <main className="center" role="alert">
        <p>{strings.errors.crashed}</p>
        <button type="button" className="button" onClick={() => location.reload()}>
          {strings.errors.reload}
        </button>
      </main>
    );
  }
}
