/* The page's style sheet and its script. They are part of the page, which loads no other files.
 *
 * The colours of phases can be distinguished by colour-blind readers, too: any two of them, with red or green vision missing, differ by
 * at least CIEDE2000 15, in light and in dark (tests/cli/report_page computes it). Nothing else has a phase's colour: ranks are
 * labelled. */
#ifndef LS_CLI_HTML_ASSETS_H
#define LS_CLI_HTML_ASSETS_H

/* --on-PHASE is for text on that phase. */
#define LIGHT                                                                                    \
    "--bg:#f3f5f7;--card:#ffffff;--ink:#18202b;--dim:#566273;--line:#dce2e9;--grid:#e8ecf1;"     \
    "--good:#177a4c;--bad:#b3261e;"                                                              \
    "--data:#e89915;--forward:#67b0f5;--backward:#2b4084;--update:#217a6b;--waiting:#d93627;"    \
    "--communication:#a345e7;--eval:#9aa37f;--checkpoint:#4e3b31;--other:#989ea6;"               \
    "--on-data:#10151c;--on-forward:#10151c;--on-backward:#ffffff;--on-update:#ffffff;"          \
    "--on-waiting:#ffffff;--on-communication:#ffffff;--on-eval:#10151c;--on-checkpoint:#ffffff;" \
    "--on-other:#10151c;"
#define DARK                                                                                     \
    "--bg:#10151c;--card:#19212b;--ink:#e4e9ef;--dim:#9aa7b6;--line:#2c3744;--grid:#263140;"     \
    "--good:#58c491;--bad:#f28b80;"                                                              \
    "--data:#fab843;--forward:#b7dafc;--backward:#4964c2;--update:#45a985;--waiting:#f2432f;"    \
    "--communication:#c186f3;--eval:#cce2b5;--checkpoint:#74635e;--other:#7d8594;"               \
    "--on-data:#10151c;--on-forward:#10151c;--on-backward:#ffffff;--on-update:#10151c;"          \
    "--on-waiting:#10151c;--on-communication:#10151c;--on-eval:#10151c;--on-checkpoint:#ffffff;" \
    "--on-other:#10151c;"

/* A fill, a swatch, and text on it. */
#define PHASE(name)                                                    \
    "." name "{fill:var(--" name ");background-color:var(--" name ")}" \
    "svg .t-" name "{fill:var(--on-" name ")}.legend i." name "{color:var(--on-" name ")}"

#define PHASES        \
    PHASE("data")     \
    PHASE("forward")  \
    PHASE("backward") \
    PHASE("update") PHASE("waiting") PHASE("communication") PHASE("checkpoint") PHASE("eval") PHASE("other")

#define FONT "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"

static const char html_style[] =
    ":root{color-scheme:light dark;" LIGHT "}"
    "@media screen and (prefers-color-scheme:dark){:root{" DARK "}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 " FONT ";-webkit-text-size-adjust:100%}"
    "main{max-width:1200px;margin:0 auto;padding:20px 16px "
    "48px;display:grid;gap:16px;grid-template-columns:minmax(0,1fr)}"
    "h1{font-size:20px;line-height:1.25;margin:0;overflow-wrap:anywhere}h1 span{font-weight:400;color:var(--dim)}"
    "h2{font-size:17px;margin:0;line-height:1.3}h3{font-size:14px;margin:16px 0 0;font-weight:600}"
    "p{margin:4px 0 0;color:var(--dim);max-width:110ch}p.lead{margin-top:4px;font-size:13.5px;max-width:none}"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;min-width:0}"
    ".card>p{font-size:13.5px}.chart{margin-top:12px}"
    /* The verdict: one number, and what to do about it. */
    ".hero{display:grid;grid-template-columns:minmax(0,1fr);gap:14px 40px;padding:20px 22px}"
    ".now b{display:block;font-size:58px;font-weight:700;line-height:1.05;letter-spacing:-.02em;white-space:nowrap;"
    "font-variant-numeric:tabular-nums}.now b small{font-size:.5em;font-weight:600;letter-spacing:0;margin-left:.18em}"
    ".now span{display:block;font-size:15px;font-weight:600}.now i{display:block;font-style:normal;font-size:13px;"
    "color:var(--dim)}"
    ".verdict{min-width:0}.verdict h2{font-size:20px;overflow-wrap:anywhere}.verdict p{max-width:96ch}"
    ".verdict h2::first-letter,.verdict p::first-letter,.findings li>b::first-letter,.findings "
    ".why::first-letter,.notes "
    "li::first-letter{text-transform:uppercase}"
    ".verdict .do,.findings .do{color:var(--ink)}.do b{font-weight:600}"
    ".gain{display:grid;grid-template-columns:auto minmax(0,1fr);gap:3px 10px;align-items:center;margin-top:10px;"
    "font-size:13px;max-width:640px;font-variant-numeric:tabular-nums}.gain>span{color:var(--dim)}"
    ".gain div{display:flex;align-items:center;gap:8px;white-space:nowrap}"
    ".gain i{height:12px;border-radius:2px;background:var(--dim);flex:0 1 auto;min-width:2px}"
    ".gain .then i{background:var(--good)}.gain b{font-weight:600}.gain .then b{color:var(--good)}"
    "dl.figures{grid-column:1/-1;display:grid;gap:10px 22px;margin:2px 0 0;padding-top:14px;border-top:1px solid "
    "var(--line);"
    "grid-template-columns:repeat(auto-fit,minmax(118px,1fr))}"
    "dl.figures div{display:flex;flex-direction:column-reverse;justify-content:flex-end}"
    "dl.figures dt{font-size:12px;line-height:1.35;color:var(--dim)}"
    "dl.figures dd{margin:0;font-size:16px;font-weight:600;line-height:1.3;font-variant-numeric:tabular-nums}"
    "dl.figures dd.warn{color:var(--bad)}"
    ".findings{list-style:none;margin:12px 0 0;padding:0;display:grid;gap:10px}"
    ".findings li{border-left:3px solid var(--line);padding:2px 0 2px 14px}"
    ".findings li>b{display:block}.findings .do,.findings .why,.findings .then{display:block;font-size:14px}"
    ".findings .why{color:var(--dim)}"
    ".findings .then{font-size:13px;font-variant-numeric:tabular-nums;color:var(--good);font-weight:600}"
    ".o{white-space:nowrap}"
    "details{margin-top:10px}summary{cursor:pointer;color:var(--dim);font-size:13.5px}"
    ".notes{margin:6px 0 0;padding-left:20px;color:var(--dim);font-size:13.5px}"
    ".legend{display:flex;flex-wrap:wrap;gap:4px 14px;margin-top:10px;font-size:13px;color:var(--dim)}"
    ".legend>span{display:inline-flex;align-items:center}"
    ".legend i{flex:none;width:16px;height:16px;border-radius:3px;margin-right:6px;"
    "font:600 11px/16px " FONT ";text-align:center}"
    ".legend i.thin{height:5px;border-radius:1px}"
    "svg{display:block;max-width:100%;height:auto;overflow:visible;font:12px " FONT
    ";font-variant-numeric:tabular-nums}"
    "svg rect{shape-rendering:crispEdges}svg text{fill:var(--dim)}svg .ink{fill:var(--ink)}svg .b{font-weight:600}"
    "svg .in{font-weight:600;pointer-events:none}"
    "svg .unit{fill:var(--dim);font-size:11.5px}"
    ".grid{stroke:var(--grid);fill:none;stroke-width:1}.axis{stroke:var(--line);fill:none}" PHASES
    ".queue{fill:var(--line);background:var(--line)}"
    /* Time that was not scheduled: holes in the bar. */
    ".hatch{fill:url(#hatch);pointer-events:none}.hole{fill:var(--card);shape-rendering:auto}"
    ".legend i.hatch{background:repeating-linear-gradient(135deg,var(--card) 0 2.5px,var(--dim) 2.5px "
    "6px);"
    "border:1px solid var(--dim)}"
    ".heat{fill:var(--waiting)}.cell{fill:none;stroke:var(--line)}"
    ".hit{fill:transparent}.hit:hover{fill:var(--ink);fill-opacity:.09}"
    ".curve{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke:var(--ink)}.curve.faint{stroke-"
    "width:1;opacity:.35}"
    ".area{fill:var(--ink);fill-opacity:.16}.lost{fill:var(--dim);fill-opacity:.75}"
    ".legend i.line{height:3px;background:var(--ink)}.legend "
    "i.area{background:var(--ink);opacity:.3}"
    ".dot{fill:var(--card);stroke:var(--ink);stroke-width:2}"
    ".legend i.dot{width:11px;height:11px;border:2px solid "
    "var(--ink);border-radius:50%}"
    ".scroll{overflow-x:auto;margin-top:10px;background:linear-gradient(90deg,var(--card) "
    "30%,transparent) left/40px "
    "100% no-repeat "
    "local,linear-gradient(270deg,var(--card) 30%,transparent) right/40px 100% no-repeat local,"
    "linear-gradient(90deg,var(--line),transparent) left/10px 100% no-repeat,"
    "linear-gradient(270deg,var(--line),transparent) right/10px 100% no-repeat}"
    "table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums;width:100%}"
    "th,td{text-align:right;padding:5px 10px;border-bottom:1px solid var(--line);white-space:nowrap}"
    "th{color:var(--dim);font-weight:500;font-size:12.5px;vertical-align:bottom}"
    "th:first-child,td:first-child,.l{text-align:left}tr:last-child td{border-bottom:0}"
    "td.share{background:linear-gradient(var(--line),var(--line)) right center/calc(var(--w)*.9) 72% no-repeat;"
    "min-width:110px}"
    "td.warn{color:var(--bad);font-weight:600}td.good{color:var(--good)}td.bad{color:var(--bad)}"
    "td .legend{margin:0;flex-wrap:nowrap;color:inherit;font-size:inherit}"
    ".runs{margin:8px 0 0;display:grid;grid-template-columns:auto minmax(0,1fr);gap:4px "
    "10px;font-size:13.5px}"
    ".runs dt{font-weight:700;width:22px;height:22px;line-height:20px;text-align:center;border:1px "
    "solid var(--dim);"
    "border-radius:5px}.runs dd{margin:0;color:var(--dim);overflow-wrap:anywhere}.runs dd "
    "b{color:var(--ink)}"
    ".two{display:grid;gap:16px;grid-template-columns:minmax(0,1fr)}"
    ".m,.l2,.two:empty{display:none}.wide{grid-column:1/-1}"
    "#tip{position:fixed;pointer-events:none;z-index:9;background:var(--ink);color:var(--bg);padding:"
    "6px "
    "10px;border-radius:6px;"
    "font-size:12.5px;line-height:1.4;white-space:pre-line;max-width:min(340px,92vw);visibility:"
    "hidden;"
    "font-variant-numeric:tabular-nums;box-shadow:0 3px 12px #0005}"
    "footer{color:var(--dim);font-size:12.5px}"
    "@media screen and (max-width:520px){.w{display:none}th,td{padding:5px "
    "6px}td:first-child,th:first-child{padding-left:2px}"
    ".card{padding:14px 14px}.now{display:grid;grid-template-columns:auto 1fr;column-gap:18px}"
    ".now b{font-size:48px;grid-row:span "
    "3;align-self:center}dl.figures{grid-template-columns:repeat(2,minmax(0,1fr))}}"
    "@media (min-width:760px){.full .s{display:none}.full "
    ".m{display:block}.two{grid-template-columns:repeat(2,minmax(0,1fr))}"
    ".hero{grid-template-columns:auto minmax(0,1fr)}}"
    "@media screen and (min-width:1120px){.full .m{display:none}.full .l2{display:block}.half "
    ".s{display:none}.half "
    ".l2{display:block}}"
    "@media print{:root{" LIGHT
    "}body{background:#fff;font-size:12px;-webkit-print-color-adjust:exact;print-color-adjust:exact}"
    "main{padding:0 2px;max-width:none;display:block}.card{margin-bottom:10px}.card,.findings "
    "li{break-inside:avoid}.hero{grid-template-columns:auto minmax(0,1fr);gap:10px 28px}.now "
    "b{font-size:40px}"
    ".full .s{display:none}.full .m{display:block}.half .s{display:block}.half .l2{display:none}"
    ".two{grid-template-columns:repeat(2,minmax(0,1fr));gap:10px;margin-bottom:10px}.two "
    ".card{margin:0}"
    ".card>p,.findings .do,.findings .why,.findings .then,.notes,.legend,.runs,.verdict p{font-size:11.5px}"
    "dl.figures{grid-template-columns:repeat(4,minmax(0,1fr))}.findings li>b{font-size:12.5px}"
    "table{font-size:10.5px}th{font-size:10px}th,td{padding:3px 5px}.two "
    ".w{display:none}.scroll{overflow:visible;background:none}#tip{display:none}}";

/* Shows the numbers of what is under the pointer or the finger. */
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
    "document.addEventListener('pointerleave',function(e){if(e.pointerType!='touch')tip.style.visibility='hidden'})})()"
    ";";

/* Patterns that charts fill with. */
static const char html_patterns[] =
    "<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\"><defs><pattern id=\"hatch\" "
    "width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect class=\"hole\" "
    "width=\"2.5\" height=\"6\"/></pattern></defs></svg>\n";

#endif
