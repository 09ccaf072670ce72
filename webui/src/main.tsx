import { createRoot } from "react-dom/client";
import "@fontsource-variable/atkinson-hyperlegible-next/wght.css";
import "@fontsource-variable/atkinson-hyperlegible-mono/wght.css";
import "./styles/tokens.css";
import "./styles/base.css";
import { App } from "./app/App";
import { Fault } from "./app/Fault";
import { start } from "./shell/store";

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <Fault>
      <App />
    </Fault>,
  );
  void start();
}
