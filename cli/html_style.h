/* The page's style sheet and its script. Everything is in the page: nothing is fetched. */
#ifndef LS_CLI_HTML_STYLE_H
#define LS_CLI_HTML_STYLE_H

#define LIGHT                                                                                            \
    "--bg:#f4f6f8;--card:#fff;--ink:#18202b;--dim:#566273;--line:#dce2e9;--grid:#e8ecf1;--mark:#1f5fbf;" \
    "--good:#177a4c;--bad:#c0362c;--data:#d9971a;--forward:#3f83d1;--backward:#6a55c2;--update:#1f9e89;" \
    "--waiting:#d8432f;--communication:#d070a8;--checkpoint:#8f6b46;--eval:#7aa63a;--other:#98a2ae;--on:#fff;"
#define DARK                                                                                                \
    "--bg:#10151c;--card:#19212b;--ink:#e4e9ef;--dim:#9aa7b6;--line:#2c3744;--grid:#263140;--mark:#7fb2f5;" \
    "--good:#58c491;--bad:#f0796c;--data:#e3ab3f;--forward:#5b9be4;--backward:#9482e6;--update:#3dbba5;"    \
    "--waiting:#ec6553;--communication:#de8abb;--checkpoint:#b08c65;--eval:#96c257;--other:#77838f;--on:#10151c;"

static const char html_style[] =
    ":root{color-scheme:light dark;" LIGHT "}"
    "@media screen and (prefers-color-scheme:dark){:root{" DARK "}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,"
    "'Helvetica Neue',Arial,sans-serif;-webkit-text-size-adjust:100%}"
    "main{max-width:1200px;margin:0 auto;padding:20px 16px "
    "48px;display:grid;gap:16px;grid-template-columns:minmax(0,1fr)}"
    "h1{font-size:22px;line-height:1.25;margin:0;overflow-wrap:anywhere}h2{font-size:17px;margin:0}"
    "p{margin:4px 0 0;color:var(--dim);max-width:110ch}p.lead{margin-top:6px}"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;min-width:0}"
    ".card>p{font-size:13.5px}.chart{margin-top:12px}"
    ".tiles{display:grid;gap:10px;grid-template-columns:repeat(auto-fit,minmax(132px,1fr))}"
    ".tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 14px}"
    ".tile b{display:block;font-size:21px;font-weight:650;font-variant-numeric:tabular-nums;line-height:1.3}"
    ".tile span{font-size:12.5px;color:var(--dim);display:block;line-height:1.35}"
    ".findings{list-style:none;margin:12px 0 0;padding:0;display:grid;gap:10px;counter-reset:n}"
    ".findings li{border-left:4px solid var(--waiting);background:var(--bg);border-radius:6px;padding:9px 14px}"
    ".findings b{display:block}.findings .do{display:block;color:var(--mark)}.findings "
    ".why{display:block;color:var(--dim)}"
    ".findings "
    ".gain{display:inline-block;font-size:13px;font-variant-numeric:tabular-nums;color:var(--good);font-weight:600}"
    ".notes{margin:6px 0 0;padding-left:20px;color:var(--dim);font-size:13.5px}"
    ".legend{display:flex;flex-wrap:wrap;gap:3px 15px;margin-top:10px;font-size:13px;color:var(--dim)}"
    ".legend i{display:inline-block;width:11px;height:11px;border-radius:2.5px;margin-right:6px;vertical-align:-1px}"
    "svg{display:block;max-width:100%;height:auto;overflow:visible;font:12px system-ui,-apple-system,'Segoe UI',Roboto,"
    "'Helvetica Neue',Arial,sans-serif;font-variant-numeric:tabular-nums}"
    "svg rect{shape-rendering:crispEdges}svg text{fill:var(--dim)}svg .ink{fill:var(--ink)}svg "
    ".on{fill:var(--on);font-weight:600}svg "
    ".unit{fill:var(--dim);font-size:11.5px}"
    ".grid{stroke:var(--grid);fill:none;stroke-width:1}.axis{stroke:var(--line);fill:none}"
    ".data{fill:var(--data);background:var(--data)}.forward{fill:var(--forward);background:var(--forward)}"
    ".backward{fill:var(--backward);background:var(--backward)}.update{fill:var(--update);background:var(--update)}"
    ".waiting{fill:var(--waiting);background:var(--waiting)}"
    ".communication{fill:var(--communication);background:var(--communication)}"
    ".checkpoint{fill:var(--checkpoint);background:var(--checkpoint)}.eval{fill:var(--eval);background:var(--eval)}"
    ".other{fill:var(--other);background:var(--other)}.queue{fill:var(--line);background:var(--line)}"
    ".overlap{fill:var(--communication);background:var(--communication);opacity:.55}"
    ".heat{fill:var(--waiting)}.cell{fill:none;stroke:var(--line)}"
    ".hit{fill:transparent}.hit:hover{fill:var(--ink);fill-opacity:.09}"
    ".curve{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke:var(--mark)}.curve.faint{stroke-width:1;opacity:."
    "35}"
    ".dot{fill:var(--bad);background:var(--bad)}.mark{fill:var(--mark);background:var(--mark)}"
    ".s0{stroke:var(--forward)}.s1{stroke:var(--data)}.s2{stroke:var(--update)}.s3{stroke:var(--backward)}"
    ".s4{stroke:var(--communication)}.s5{stroke:var(--eval)}.s6{stroke:var(--waiting)}.s7{stroke:var(--other)}"
    ".b0{background:var(--forward)}.b1{background:var(--data)}.b2{background:var(--update)}.b3{background:var(--"
    "backward)}"
    ".b4{background:var(--communication)}.b5{background:var(--eval)}.b6{background:var(--waiting)}.b7{background:var(--"
    "other)}"
    ".scroll{overflow-x:auto;margin-top:10px}"
    "table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums;width:100%}"
    "th,td{text-align:right;padding:5px 10px;border-bottom:1px solid var(--line);white-space:nowrap}"
    "th{color:var(--dim);font-weight:500;font-size:12.5px;vertical-align:bottom}"
    "th:first-child,td:first-child,.l{text-align:left}tr:last-child td{border-bottom:0}"
    "td.warn{color:var(--bad);font-weight:600}td.good{color:var(--good)}td.bad{color:var(--bad)}"
    ".two{display:grid;gap:16px;grid-template-columns:minmax(0,1fr)}"
    ".m,.l2{display:none}.sub{font-size:14px;margin:16px 0 0;font-weight:600}"
    "#tip{position:fixed;pointer-events:none;z-index:9;background:var(--ink);color:var(--bg);padding:6px "
    "10px;border-radius:6px;"
    "font-size:12.5px;line-height:1.4;white-space:pre-line;max-width:min(340px,92vw);visibility:hidden;"
    "font-variant-numeric:tabular-nums;box-shadow:0 3px 12px #0005}"
    "footer{color:var(--dim);font-size:12.5px}"
    "code{font:12.5px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}"
    "@media (min-width:760px){.full .s{display:none}.full "
    ".m{display:block}.two{grid-template-columns:repeat(2,minmax(0,1fr))}}"
    "@media screen and (min-width:1120px){.full .m{display:none}.full .l2{display:block}.half .s{display:none}.half "
    ".l2{display:block}}"
    "@media print{:root{" LIGHT
    "}body{background:#fff;font-size:12px;-webkit-print-color-adjust:exact;print-color-adjust:exact}"
    "main{padding:0;gap:10px;max-width:none;display:block}.card,.tiles{margin-bottom:10px}.card,.tile,.findings "
    "li{break-inside:avoid}"
    ".full .s{display:none}.full .m{display:block}.half .s{display:block}.half .l2{display:none}"
    ".two{grid-template-columns:repeat(2,minmax(0,1fr));gap:10px;margin-bottom:10px}.two .card{margin:0}"
    "table{font-size:10.5px}th{font-size:10px}th,td{padding:3px 5px}.scroll{overflow:visible}#tip{display:none}}";

/* What lies under the pointer, or under the finger, tells its numbers. */
static const char html_script[] =
    "(function(){var tip=document.getElementById('tip');"
    "function show(e){var t=e.target&&e.target.getAttribute&&e.target.getAttribute('data-t');"
    "if(!t){tip.style.visibility='hidden';return}"
    "tip.textContent=t;var w=tip.offsetWidth,h=tip.offsetHeight,x=e.clientX+14,y=e.clientY+16;"
    "if(x+w>innerWidth-6)x=Math.max(6,e.clientX-w-10);if(y+h>innerHeight-6)y=Math.max(6,e.clientY-h-12);"
    "tip.style.left=x+'px';tip.style.top=y+'px';tip.style.visibility='visible'}"
    "document.addEventListener('pointermove',show,{passive:true});document.addEventListener('pointerdown',show,{"
    "passive:true});"
    "addEventListener('scroll',function(){tip.style.visibility='hidden'},{passive:true});"
    "document.addEventListener('pointerleave',function(){tip.style.visibility='hidden'})})();";

#endif
