// How far a stream is sealed and indexed.

import { bytes, count, facts, h, json, nothing, span, table, time } from "./dom.js";

const FAMILIES = { exact: "exact values", col: "columns", fts: "text and prefixes", agg: "rollups" };

export const indexes = (place, { stream, storage, index_status: status }) => {
  const published = stream.segment_count;
  const covered = (one) => {
    if (!published) return "nothing is sealed yet";
    const has = one.covered_segment_count ?? one.indexed_segment_count ?? 0;
    const told = `${has} of ${published}`;
    const bar = { class: "bar", max: published, value: has, "aria-label": `${told} segments` };
    return h("span", {}, h("progress", bar), ` ${told}`);
  };
  const row = (name, of, one) => [
    name, of, covered(one), `${one.lag_segments ?? 0}`, one.lag_ms == null ? null : span(one.lag_ms), bytes(one.bytes_at_rest ?? 0), time(one.updated_at),
  ];
  const rows = [
    ...(status.routing_key_index.configured ? [row("routing keys", "", status.routing_key_index)] : []),
    ...status.search_families.map((one) => row(FAMILIES[one.family] ?? one.family, (one.fields ?? []).join(", "), one)),
  ];
  place.append(
    h("h2", {}, "Sealing"),
    facts([
      ["records", count(stream.next_offset)], ["in segments", count(BigInt(stream.sealed_through) + 1n)],
      ["not sealed yet", count(stream.pending_rows)],
      ["segments", `${published}`], ["newest manifest", `${status.manifest.generation}`], ["written", time(status.manifest.last_uploaded_at)],
      ["incarnation", `${stream.epoch}`],
    ]),
    h("h2", {}, "Indexes"),
    rows.length
      ? table("Indexes", ["index", "of", "segments covered", "#behind", "#lag", "#size", "built"], rows)
      : nothing("Nothing is indexed: the schema asks for no index."),
    h("h2", {}, "Storage"),
    facts([
      ["segments", bytes(storage.object_storage.segments_bytes)], ["indexes", bytes(storage.object_storage.indexes_bytes)],
      ["manifests and definitions", bytes(storage.object_storage.manifest_and_meta_bytes)],
      ["write-ahead log", bytes(storage.local_storage.wal_retained_bytes)],
    ]),
    h("details", {}, h("summary", {}, "Everything about indexes"), json(status)));
};
