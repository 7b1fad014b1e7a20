"""Style of the page: two palettes, series told apart by colour and by marker."""

STYLE = """
:root{--bg:#fff;--fg:#1b1f24;--dim:#59636e;--line:#e3e6ea;--axis:#8a929c;--card:#f6f8fa;--mark:#7a4fb5;
--s0:#0b63a5;--s1:#c4501b;--s2:#0a7f5b;--s3:#8a4bb0;--warn:#a1260d}
@media(prefers-color-scheme:dark){:root{--bg:#0f1216;--fg:#e6e9ee;--dim:#a2abb6;--line:#2a3038;--axis:#6b7480;
--card:#171b21;--mark:#c3a5f0;--s0:#5fb3f0;--s1:#ff9a62;--s2:#4fd1a5;--s3:#d0a2f5;--warn:#ff9b85}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1240px;margin:0 auto;padding:16px}
h1{font-size:1.3rem;line-height:1.3;overflow-wrap:anywhere}h2{font-size:1.05rem;margin:1.6em 0 .5em}
.lead{font-size:1.1rem;background:var(--card);border-left:4px solid var(--mark);padding:10px 14px;
margin:12px 0}
.warn{color:var(--warn)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:12px}
figure{margin:0;background:var(--card);border-radius:8px;padding:4px}
svg{display:block;width:100%;height:auto}
svg text{font-family:inherit}
.t-text{fill:var(--fg)}.t-dim{fill:var(--dim)}.t-mark{fill:var(--mark)}.t-warn{fill:var(--warn)}
polyline{fill:none}
.l-grid{stroke:var(--line)}.l-axis{stroke:var(--axis)}.l-mark{stroke:var(--mark)}
.l-s0{stroke:var(--s0)}.l-s1{stroke:var(--s1)}.l-s2{stroke:var(--s2)}.l-s3{stroke:var(--s3)}
.m-s0{stroke:var(--s0);fill:var(--s0)}.m-s1{stroke:var(--s1);fill:var(--s1)}
.m-s2{stroke:var(--s2);fill:var(--s2)}.m-s3{stroke:var(--s3);fill:var(--s3)}
.hollow{fill:var(--card);stroke-width:2}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums}
th,td{padding:4px 7px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child,.levels th:last-child,.levels td:last-child{text-align:left}
dl{display:grid;grid-template-columns:minmax(9em,max-content) 1fr;gap:2px 14px;font-size:.9rem}
dt{color:var(--dim)}dd{margin:0;overflow-wrap:anywhere}
pre{background:var(--card);padding:10px;overflow-x:auto;border-radius:6px;font-size:.85rem}
@media(max-width:520px){main{padding:8px}dl{grid-template-columns:1fr}dd{margin-bottom:6px}}
"""
