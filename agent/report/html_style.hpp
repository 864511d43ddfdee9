// Style sheet of the HTML report. Colours of the series: Okabe & Ito, which colour-blind readers can tell apart.
#pragma once

#include <string_view>

namespace xblk::report {

inline constexpr std::string_view kStyleSheet = R"(
:root { --ink: #1b2430; --soft: #5b6675; --line: #dfe4ea; --paper: #ffffff; --wash: #f5f7f9; --accent: #0b5394;
  --good: #12724a; --bad: #b3261e; --unsure: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ef; --soft: #9aa6b4; --line: #333c47; --paper: #171c22;
  --wash: #1f262e; --accent: #7db7f0; --good: #5ec798; --bad: #ff8a80; --unsure: #f0c36d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 4px; }
h2 { font-size: 19px; margin: 44px 0 6px; padding-bottom: 6px; border-bottom: 1px solid var(--line); }
h3 { font-size: 14px; margin: 0 0 6px; font-weight: 600; }
p { margin: 6px 0 14px; max-width: 75ch; }
.soft { color: var(--soft); }
.note { color: var(--soft); font-size: 13px; }
.platform { margin: 20px 0; padding: 14px 18px; border-left: 5px solid var(--unsure); background: var(--wash);
  font-size: 20px; font-weight: 600; }
.platform.xen { border-color: var(--good); }
.facts { display: flex; flex-wrap: wrap; gap: 10px 34px; margin: 18px 0; padding: 0; list-style: none; }
.facts b { display: block; font-size: 17px; font-weight: 600; font-variant-numeric: tabular-nums; }
.facts span { color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 13px; }
th, td { padding: 7px 12px 7px 0; border-bottom: 1px solid var(--line); vertical-align: top; white-space: nowrap; }
td.wrap { white-space: normal; overflow-wrap: anywhere; }
td.num, th.num { text-align: right; }
.chip { display: inline-block; padding: 1px 9px; border-radius: 10px; border: 1px solid currentColor; font-size: 12.5px;
  font-weight: 600; }
.good { color: var(--good); } .bad { color: var(--bad); } .unsure { color: var(--unsure); }
.grid2 { display: grid; grid-template-columns: repeat(auto-fill, minmax(480px, 1fr)); gap: 26px 32px; margin-top: 16px; }
svg { display: block; max-width: 100%; height: auto; }
svg text { font: 12px system-ui, "Segoe UI", Arial, sans-serif; fill: var(--ink); }
svg .tick, svg .missing { fill: var(--soft); font-size: 11px; }
svg .value { font-weight: 600; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .span { stroke: var(--soft); stroke-width: 1.5; }
svg .whisker { stroke: var(--ink); stroke-width: 1.5; }
svg .dot { fill: var(--paper); stroke: var(--ink); stroke-width: 1.3; }
svg .bar { fill-opacity: .8; }
svg .m0 { fill-opacity: 1; } svg .m1 { fill-opacity: .75; } svg .m2 { fill-opacity: .5; } svg .m3 { fill-opacity: .28; }
.s0 { fill: #0072b2; } .s1 { fill: #d55e00; } .s2 { fill: #009e73; } .s3 { fill: #cc79a7; }
.s4 { fill: #56b4e9; } .s5 { fill: #e69f00; } .s6 { fill: #7f7f7f; } .s7 { fill: #b8a500; }
details { border: 1px solid var(--line); border-radius: 6px; padding: 8px 14px; margin: 8px 0; background: var(--wash); }
summary { cursor: pointer; font-weight: 600; }
pre { margin: 10px 0 4px; padding: 0; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; }
footer { margin-top: 56px; color: var(--soft); font-size: 13px; }
@media print { details > * { display: block; } main { max-width: none; } }
)";

}  // namespace xblk::report
