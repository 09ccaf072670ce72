import { Download, FileWarning } from "lucide-react";
import { type MouseEvent, useCallback, useEffect, useState } from "react";
import { expired, isPicture } from "../core/files";
import type { Media } from "../core/frames";
import { messageAt } from "../shell/api";
import { useApp } from "../shell/store";
import { strings } from "../strings";

const MOST_TRIES = 2;

interface Props {
  media: Media[];
  chatKey: string;
  /** Where in the log the message is; null: not stored yet. */
  seq: number | null;
}

/** The files of a message: pictures in boxes of one size, so that nothing moves, others as rows. */
export function Files({ media, chatKey, seq }: Props) {
  if (media.length === 0) return null;
  const pictures = media.filter(isPicture);
  const others = media.filter((one) => !isPicture(one));
  return (
    <div className="files">
      {pictures.length > 0 && (
        <div className="pictures" data-single={pictures.length === 1}>
          {pictures.map((one) => (
            <Picture key={one.id} file={one} chatKey={chatKey} seq={seq} />
          ))}
        </div>
      )}
      {others.map((one) => (
        <FileRow key={one.id} file={one} chatKey={chatKey} seq={seq} />
      ))}
    </div>
  );
}

interface OneFile {
  file: Media;
  chatKey: string;
  seq: number | null;
}

/** Links run out after an hour or two; the message has fresh ones whenever it is read. */
function useLink({ file, chatKey, seq }: OneFile) {
  const connected = useApp((state) => state.link.phase === "open");
  const [fresh, setFresh] = useState<string | null>(null);
  const [tries, setTries] = useState(0);
  const [broken, setBroken] = useState(false);
  const [gone, setGone] = useState(false);
  const url = fresh ?? file.url;
  const renew = useCallback(async (): Promise<string | null> => {
    if (seq === null) return null;
    const row = await messageAt(chatKey, seq);
    const found = row?.media?.find((one) => one.id === file.id)?.url ?? null;
    if (found === null) setGone(true);
    else setFresh(found);
    return found;
  }, [chatKey, seq, file.id]);
  useEffect(() => {
    // Without the gateway nothing can be said about a file: it is asked once it is back.
    if (!broken || !connected || seq === null) return;
    void renew().then(
      () => {
        setTries((before) => before + 1);
        setBroken(false);
      },
      () => {},
    );
  }, [broken, connected, seq, renew]);
  const onError = () => (tries < MOST_TRIES ? setBroken(true) : setGone(true));
  const onClick = (event: MouseEvent) => {
    if (!expired(url, Date.now())) return;
    event.preventDefault();
    void renew().then(
      (found) => found && window.open(found, "_blank", "noopener"),
      () => {},
    );
  };
  return { url, tries, gone, onClick, onError };
}

function Picture(props: OneFile) {
  const { file } = props;
  const { url, tries, gone, onClick, onError } = useLink(props);
  const label = strings.files.open(file.name);
  return (
    <a
      className="picture"
      href={url}
      target="_blank"
      rel="noopener noreferrer"
      title={file.name}
      aria-label={label}
      onClick={onClick}
    >
      {gone ? (
        <span className="quiet">
          <FileWarning size={18} aria-hidden="true" /> {strings.files.gone}
        </span>
      ) : (
        // The link may be the same as before: only a new element asks for it again.
        <img
          key={tries}
          src={url}
          alt={file.name}
          loading="lazy"
          decoding="async"
          onError={onError}
        />
      )}
    </a>
  );
}

function FileRow(props: OneFile) {
  const { file } = props;
  const { url, gone, onClick } = useLink(props);
  return (
    <a
      className="file-row"
      href={url}
      download={file.name}
      aria-label={strings.files.save(file.name)}
      onClick={onClick}
    >
      <Download size={16} aria-hidden="true" />
      <span className="chip-name" dir="auto">
        {file.name}
      </span>
      <span className="quiet">{gone ? strings.files.gone : strings.bytes(file.size)}</span>
    </a>
  );
}
