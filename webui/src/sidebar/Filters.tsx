import { everyday, type Filter } from "../core/list";
import { setFilter, useApp } from "../shell/store";
import { strings } from "../strings";

const STATES: Filter["state"][] = ["active", "archived", "suspended"];
const CHANNELS = ["websocket", "slack"];

/** Which chats the list asks the gateway for. */
export function Filters() {
  const filter = useApp((state) => state.list.filter);
  const admin = useApp((state) => state.link.ready?.role === "admin");
  const change = (part: Partial<Filter>) => setFilter({ ...filter, ...part });
  return (
    <fieldset className="filters">
      <legend className="sr-only">{strings.sidebar.filter}</legend>
      <select
        aria-label={strings.sidebar.filterState}
        value={filter.state}
        onChange={(event) => change({ state: event.target.value as Filter["state"] })}
      >
        {STATES.map((state) => (
          <option key={state} value={state}>
            {strings.sidebar.states[state]}
          </option>
        ))}
      </select>
      {admin && (
        <select
          aria-label={strings.sidebar.filterChannel}
          value={filter.channel ?? ""}
          onChange={(event) => change({ channel: event.target.value || null })}
        >
          <option value="">{strings.sidebar.anyChannel}</option>
          {CHANNELS.map((channel) => (
            <option key={channel} value={channel}>
              {strings.channels[channel]}
            </option>
          ))}
        </select>
      )}
      {filter.tag !== null && (
        <button
          type="button"
          className="chip"
          title={strings.sidebar.removeFilter}
          onClick={() => setFilter(everyday)}
        >
          {strings.sidebar.filteredTag(filter.tag)} ×
        </button>
      )}
    </fieldset>
  );
}
