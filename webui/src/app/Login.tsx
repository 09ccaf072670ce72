import { type FormEvent, useState } from "react";
import { login } from "../shell/store";
import { strings } from "../strings";

export function Login() {
  const [token, setToken] = useState("");
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await login(token.trim());
    } catch (problem) {
      setError(problem instanceof Error ? problem.message : String(problem));
    } finally {
      setBusy(false);
    }
  };
  return (
    <main className="center">
      <form className="login" onSubmit={submit}>
        <h1>{strings.product}</h1>
        <p>
          {strings.login.text} <code>parley token new --name NAME</code>.
        </p>
        <label htmlFor="token">{strings.login.token}</label>
        <input
          id="token"
          type="password"
          autoComplete="current-password"
          required
          value={token}
          onChange={(event) => setToken(event.target.value)}
          aria-invalid={error !== null}
          aria-describedby={error ? "login-error" : undefined}
        />
        {error && (
          <p id="login-error" className="error-text" role="alert">
            {error}
          </p>
        )}
        <button type="submit" className="button primary" disabled={busy || token.trim() === ""}>
          {busy ? strings.login.busy : strings.login.submit}
        </button>
      </form>
    </main>
  );
}
