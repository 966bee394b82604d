"""How the page looks, on paper and in the dark, on a desk and on a phone."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #59636e; --paper: #fff; --card: #f6f8fa;
  --line: #d1d9e0; --track: #e4e9ee; --bar: #2563eb; --fill: #2563eb26; --other: #c2410c; --good: #1a7f37;
  --goodfill: #dafbe1; --warn: #7a4f00; --warnfill: #fff3c4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #9198a1; --paper: #0d1117;
  --card: #161b22; --line: #30363d; --track: #262c36; --bar: #5b9bff; --fill: #5b9bff33; --other: #ff9457;
  --good: #4ade80; --goodfill: #12351f; --warn: #f2c94c; --warnfill: #3a2e07; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%; }
main { max-width: 1120px; margin: 0 auto; padding: 28px 20px 64px; }
header { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; justify-content: space-between;
  margin-bottom: 20px; }
h1 { font-size: 22px; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 13px; letter-spacing: .04em; text-transform: uppercase; color: var(--dim);
  margin: 0 0 14px; font-weight: 600; }
.sub { color: var(--dim); margin: 2px 0 0; }
.badge { border-radius: 99px; padding: 5px 14px; font-weight: 600; background: var(--goodfill);
  color: var(--good); }
.badge.care { background: var(--warnfill); color: var(--warn); }
.tiles { display: grid; grid-template-columns: repeat(4, 1fr); gap: 12px; }
.tile, section { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 16px 18px; min-width: 0; }
.tile b { display: block; font-size: 26px; line-height: 1.2; overflow-wrap: anywhere; }
.tile span { color: var(--dim); font-size: 13px; }
section { margin-top: 16px; }
.two { display: grid; grid-template-columns: 1fr 1fr; gap: 16px; margin-top: 16px; align-items: start; }
.two section:first-child { margin-top: 0; }
.two > div { min-width: 0; }
.none { color: var(--dim); margin: 0; } .good { color: var(--good); margin: 0; font-weight: 600; }
.advice { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); }
.advice div { border-left: 3px solid var(--warn); padding-left: 14px; min-width: 0; }
.advice b { display: block; } .advice p { margin: 2px 0 8px; color: var(--dim); }
code { display: block; width: fit-content; max-width: 100%; background: var(--paper); user-select: all;
  border: 1px solid var(--line); border-radius: 6px; padding: 3px 9px; overflow-wrap: anywhere;
  font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", Consolas, monospace; }
.row { display: grid; grid-template-columns: minmax(0, 38%) 1fr minmax(72px, auto); gap: 10px;
  align-items: center; padding: 3px 0; font-size: 13px; }
.row .name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; text-align: right; }
.row .value { color: var(--dim); white-space: nowrap; }
.track, .share { background: var(--track); border-radius: 4px; height: 12px; display: block;
  overflow: hidden; }
.track i, .share i { display: block; height: 100%; background: var(--bar); border-radius: 4px; }
.share { display: inline-block; width: 90px; height: 8px; vertical-align: middle; margin-left: 10px; }
.share.much i { background: var(--other); }
.lines { display: grid; grid-template-columns: 1fr 1fr; gap: 24px; }
figure { margin: 0; min-width: 0; } figcaption { font-weight: 600; display: inline; }
.most { float: right; color: var(--dim); font-size: 13px; }
.plot { position: relative; height: 150px; margin-top: 8px; border-bottom: 1px solid var(--line); }
.plot svg { position: absolute; inset: 0; width: 100%; height: 100%; overflow: visible; }
.plot polygon { fill: var(--fill); }
.plot polyline { fill: none; stroke: var(--bar); stroke-width: 2; vector-effect: non-scaling-stroke;
  stroke-linejoin: round; }
.plot b { position: absolute; width: 8px; height: 8px; margin: -4px 0 0 -4px; border-radius: 50%;
  background: var(--other); border: 1.5px solid var(--card); box-sizing: content-box; }
.plot b.plain { background: var(--bar); }
.axis { display: flex; justify-content: space-between; gap: 8px; color: var(--dim); font-size: 12px;
  margin-top: 4px; }
.key { color: var(--dim); font-size: 13px; margin: 12px 0 0; }
.key i { display: inline-block; width: 9px; height: 9px; border-radius: 50%; background: var(--other);
  margin-right: 6px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: 6px 14px 6px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
tr:last-child > * { border-bottom: 0; }
th { color: var(--dim); font-weight: 500; } thead th { white-space: nowrap; }
td { overflow-wrap: anywhere; } .n { text-align: right; white-space: nowrap; } .time { white-space: nowrap; }
td.cut { max-width: 16em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.tag { border: 1px solid var(--line); border-radius: 99px; padding: 0 9px; font-size: 12px;
  color: var(--dim); }
@media (max-width: 760px) {
  main { padding: 20px 14px 48px; }
  .tiles, .two, .lines { grid-template-columns: 1fr; } .tiles { grid-template-columns: 1fr 1fr; }
  .tile b { font-size: 21px; } .row { grid-template-columns: minmax(0, 42%) 1fr minmax(64px, auto); }
  .late { display: none; } .two { gap: 0; } .two > div + div section:first-child { margin-top: 16px; }
  th, td { padding-right: 8px; }
}
@media print { section, .tile { break-inside: avoid; } }
"""
