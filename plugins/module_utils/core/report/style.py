# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Style of the page: light and dark, wide and narrow, on paper. No picture and no font of elsewhere."""

from __future__ import annotations

_LIGHT = """
--bg:#fff;--card:#f6f8fa;--fg:#1c2128;--dim:#57606a;--line:#c8d1da;--link:#0b57b0;--free:#dfe5ec;--node:#8c96a1;--on:#fff;
--heat:#2f81c7;--good:#1a6b33;--warn:#7a4b00;--bad:#b3202b;--unknown:#6b3fb0;--badbg:#fdeceb;
--p0:#1f65c4;--p1:#a84a00;--p2:#1a7a3c;--p3:#7b45cf;--p4:#b5307f;--p5:#0c6f86;--p6:#7d6200;--p7:#c2292f;--p8:#57606a;--p9:#5d7000;
"""
_DARK = """
--bg:#0f141a;--card:#182029;--fg:#e3e8ee;--dim:#a3adb9;--line:#36414d;--link:#79b8ff;--free:#2b3541;--node:#6f7b89;--on:#0b0f14;
--heat:#3d8fd8;--good:#6fd68a;--warn:#e8b44f;--bad:#ff8d87;--unknown:#cfa6ff;--badbg:#2d1719;
--p0:#79b8ff;--p1:#ffa657;--p2:#6fd68a;--p3:#cfa6ff;--p4:#ff99cc;--p5:#62d0e6;--p6:#e3c341;--p7:#ff8d87;--p8:#b1bac4;--p9:#c3d65a;
"""
_LEVELS = "".join(
    f".l{level}{{background:color-mix(in srgb,var(--heat) {level * 6}%,var(--bg))}}\n" for level in range(11)
)
_COLOURS = "".join(f".d{number}{{--c:var(--p{number})}}\n" for number in range(10))

STYLE = (
    f""":root{{color-scheme:light dark;{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
{_COLOURS}{_LEVELS}"""
    + """
*{box-sizing:border-box}
html{scroll-padding-top:4.5rem;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.45 system-ui,sans-serif;overflow-wrap:anywhere}
header,main,footer,nav{max-width:86rem;margin:0 auto;padding:0 1rem}
h1{font-size:1.5rem;margin:1rem 0 .5rem}
h2{font-size:1.2rem;margin:2rem 0 .5rem;padding-top:.5rem;border-top:2px solid var(--line)}
h3{font-size:1rem;margin:1rem 0 .25rem}
h4{font-size:.95rem;margin:.75rem 0 0}
p{margin:.35rem 0}
a{color:var(--link)}
code{font:.92em ui-monospace,monospace;unicode-bidi:isolate}
p>code{background:var(--free);border-radius:.2rem;padding:0 .2rem}
.m{color:var(--dim);font-size:.87rem}
.skip{position:absolute;left:-99rem}
.skip:focus{left:1rem;top:1rem;background:var(--bg);padding:.5rem;z-index:3}
[hidden]{display:none!important}
:focus-visible{outline:3px solid var(--link);outline-offset:2px}
nav ul,.sum,.lb,.lg,.tiles,.tn,.dv,.rt,.services,.ca,.at{list-style:none;margin:.25rem 0;padding:0}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1rem}
.sum{display:flex;flex-wrap:wrap;gap:.5rem}
.sum li{
background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.25rem .75rem;
color:var(--dim)
}
.sum strong{color:var(--fg);font-size:1.15rem}
.bar{position:sticky;top:0;z-index:2;background:var(--bg);border-bottom:1px solid var(--line)}
.bar>div{
max-width:86rem;margin:0 auto;padding:.5rem 1rem;display:flex;flex-wrap:wrap;gap:.4rem .75rem;
align-items:center
}
.bar label{display:flex;gap:.4rem;align-items:center}
.bar label:first-child{flex:1 1 16rem}
input,select,button{
font:inherit;color:var(--fg);background:var(--card);border:1px solid var(--node);border-radius:.4rem;
padding:.25rem .5rem;min-height:2.1rem
}
input{flex:1;min-width:0}
/* It is there for screen readers before it says anything. */
#message:empty{position:absolute}
summary{cursor:pointer;padding:.35rem .25rem}
summary h3{display:inline;margin:0}
.card{background:var(--card);border:1px solid var(--line);border-radius:.6rem;padding:.25rem .75rem;min-width:0}
.many>.card{content-visibility:auto;contain-intrinsic-size:auto 3rem}
.card>summary{list-style-position:outside;margin-left:1rem}
.card>summary>*{margin-right:.5rem}
.card>summary>.m{display:inline-block}
.use{display:block;max-width:24rem}
.card>div{padding-bottom:.5rem}
.card>div:target{outline:2px solid var(--link);outline-offset:.35rem;border-radius:.3rem}
tr:target{outline:2px solid var(--link)}
.cards{
display:grid;gap:.75rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,25rem),1fr));
align-items:start
}
.services{display:grid;gap:.75rem;grid-template-columns:minmax(0,1fr)}
:is(.services,.cards)+button{margin-top:.5rem}
.services+.card{margin-top:.75rem}
.card>h3{margin:.5rem 0}
@media (min-width:70rem){
.first{display:grid;gap:0 1.5rem;grid-template-columns:minmax(0,22rem) minmax(0,1fr);align-items:start}
}
.pool{border-top:1px solid var(--line);margin-top:.5rem}
svg{display:block;max-width:100%;margin:.4rem 0}
svg.g{width:100%;height:6px;max-width:24rem;margin:.15rem 0}
.g{background:var(--free)}.g path{fill:var(--heat)}.over path{fill:var(--bad)}
svg.units{height:12px;background:none;overflow:visible}
.units .rest{fill:var(--free)}.units .bound{fill:none;stroke:var(--fg);stroke-width:2px}
svg.defs{position:absolute;margin:0}
.n{fill:none;stroke:var(--node)}
.f,.t{fill:none;stroke-width:14;stroke:var(--free);stroke-dasharray:14 2}
.t{stroke:var(--c)}
.w{stroke-width:18;stroke-dasharray:none}
text{font:700 10px sans-serif;fill:var(--on);text-anchor:middle;pointer-events:none}
.k{
background:var(--c);color:var(--on);font:700 11px/1.3rem sans-serif;border-radius:3px;
min-width:1.3rem;height:1.3rem;padding:0 .15rem;text-align:center;display:inline-block;
vertical-align:middle;flex:none
}
.lg{display:flex;flex-wrap:wrap;gap:.25rem 1rem}
ul.tn>li{display:flex;gap:.5rem;margin:.4rem 0;align-items:flex-start}
.tn>li>div{min-width:0}
.lb{display:flex;flex-wrap:wrap;gap:.25rem .4rem}
.lb li{border:1px solid var(--line);border-radius:.4rem;padding:0 .4rem;font-size:.87rem}
.tiles{display:grid;gap:3px;grid-template-columns:repeat(auto-fill,minmax(6.1rem,1fr))}
figure{margin:.5rem 0 1rem}
.tile{
display:block;color:var(--fg);text-decoration:none;border:1px solid var(--line);border-radius:4px;
padding:.15rem .3rem;font-size:12px;line-height:1.3;white-space:nowrap;overflow:hidden
}
.small{grid-template-columns:repeat(auto-fill,minmax(1.6rem,1fr))}
.small .tile{height:1.6rem;padding:0;display:grid;place-items:center}
.tile span{display:block}
.tile b{color:var(--fg)}
.b{
display:inline-block;font-size:.8rem;font-weight:600;border:1px solid;border-radius:.4rem;
padding:0 .4rem;color:var(--dim)
}
.new{color:var(--good)}.new::before{content:"+ "}
.changed,.replaced{color:var(--link)}.changed::before{content:"~ "}.replaced::before{content:"\\21c4  "}
.held::before{content:"\\2016  "}
.removed{color:var(--bad)}.removed::before{content:"\\2212  "}
.pending,.warn{color:var(--warn)}.bad{color:var(--bad)}.bad::before{content:"! "}
.good{color:var(--good)}.good::before{content:"\\2713  "}.warn::before{content:"\\25cb  "}
.unknown{color:var(--unknown);border-style:dashed}.unknown::before{content:"? "}
.t-bad{border:2px solid var(--bad)}.t-unknown{border:2px dashed var(--unknown)}.t-warn{border-color:var(--warn)}
table{border-collapse:collapse;width:100%;table-layout:fixed}
caption{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
th,td{text-align:left;vertical-align:top;padding:.35rem .5rem .35rem 0;border-bottom:1px solid var(--line)}
th:first-child{width:34%}
.numbers{max-width:40rem;table-layout:auto}.numbers .n{text-align:right;overflow-wrap:normal}
.numbers th{font-weight:400}.numbers thead th{font-weight:600}
.rt>li{
display:grid;gap:.25rem 1rem;padding:.5rem 0;border-top:1px solid var(--line);
grid-template-columns:minmax(0,11fr) minmax(0,11fr) minmax(0,8fr)
}
.two>li{grid-template-columns:minmax(0,1fr) minmax(0,2fr)}
.parts{display:grid;gap:0 2rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,21rem),1fr))}
.half>li{grid-template-columns:minmax(0,1fr) minmax(0,1fr)}
.load+.load{margin-top:.4rem}
.hop{position:relative;padding-left:1.4rem}
.hop::before{content:"\\2192";position:absolute;left:0;color:var(--dim)}
.wait{border-left:4px solid var(--bad);background:var(--badbg);padding:.25rem .6rem;margin:.4rem 0;border-radius:.2rem}
.warn-line{border-color:var(--warn);background:var(--card)}
.wait p{margin:.15rem 0}
#attention~p .good{font-size:1rem;padding:.25rem .75rem}
.rf{margin:.25rem 0;padding-left:1.25rem}
.files{padding-left:1.25rem}
pre{margin:0 0 .5rem;font:.85em ui-monospace,monospace;white-space:pre-wrap}
footer{margin:2rem auto;color:var(--dim);font-size:.87rem}
@media (max-width:44rem){
.rt>li,.two>li,.half>li{grid-template-columns:minmax(0,1fr)}
th:first-child{width:47%}
.hop::before{content:"\\2193"}
.tiles:not(.small){grid-template-columns:repeat(auto-fill,minmax(5.4rem,1fr))}
.tile{font-size:11px;padding:.15rem .25rem}
.bar{position:static}
html{scroll-padding-top:.5rem}
.bar>div{padding:.35rem 1rem;font-size:.87rem}
.bar>div{gap:.4rem}.bar button{padding:.25rem .4rem}.bar label+label{flex:1}.bar select{flex:1;min-width:5rem}
.sum{gap:.35rem;font-size:.93rem}.sum li{padding:.1rem .5rem}.sum strong{font-size:1rem}
nav ul{gap:.15rem .75rem;font-size:.93rem}
/* What follows is not far below a fleet of many clusters. */
.small{max-height:20rem;overflow-y:auto}
}
@media print{
.bar,.skip,nav{display:none}
.card,tr{break-inside:avoid}
body{font-size:11px}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
}
"""
)
