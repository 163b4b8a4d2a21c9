#include "parax/cli/report.h"

#include <fmt/core.h>

#include <algorithm>

#include "parax/base/file.h"

namespace parax {
namespace {

constexpr size_t kMostMatrixClasses = 100;  // more: the most confused pairs instead
constexpr size_t kMostPairs = 30;

constexpr char kStyle[] = R"(
:root{--bg:#fff;--fg:#1b1f24;--soft:#667;--rule:#dde;--card:#f6f7f9;--c0:#2166ac;--c1:#d6604d;--hit:33,102,172;--miss:214,96,77}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e6e8eb;--soft:#9aa3ad;--rule:#2c323a;--card:#1c2127;--c0:#6fb1f0;--c1:#f08a78;--hit:111,177,240;--miss:240,138,120}}
*{box-sizing:border-box}body{margin:0 auto;padding:24px 16px 60px;max-width:1180px;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;margin:34px 0 10px}.soft{color:var(--soft)}
.cards{display:flex;flex-wrap:wrap;gap:10px;margin:18px 0}.card{background:var(--card);border-radius:8px;padding:10px 16px;min-width:120px}
.card b{display:block;font-size:20px;font-weight:600}.card span{color:var(--soft);font-size:13px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:14px}
svg{width:100%;height:auto;background:var(--card);border-radius:8px}svg text{fill:var(--fg);font:12px system-ui,sans-serif}
svg .title{font-weight:600;font-size:13px}svg .tick{fill:var(--soft)}svg .grid{stroke:var(--rule)}
svg .line{fill:none;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}svg .t0{fill:var(--c0)}svg .t1{fill:var(--c1)}svg .faint{opacity:.3;stroke-width:1}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px}td,th{padding:4px 8px;text-align:right;white-space:nowrap}
th{font-weight:500;color:var(--soft)}td:first-child,th:first-child{text-align:left}
.matrix td{background:var(--card);text-align:center;min-width:30px;border:1px solid var(--bg);font-variant-numeric:tabular-nums}.matrix th:first-child{position:sticky;left:0;background:var(--bg)}
.matrix th.column{writing-mode:vertical-rl;transform:rotate(180deg);padding:8px 4px;text-align:left}
.mistakes{display:grid;grid-template-columns:repeat(auto-fill,minmax(124px,1fr));gap:12px}.mistakes figure{margin:0;background:var(--card);border-radius:8px;overflow:hidden}
.mistakes img{width:100%;aspect-ratio:1;object-fit:cover;display:block}.mistakes figcaption{padding:6px 8px;font-size:12px;line-height:1.35;overflow-wrap:anywhere}
pre{background:var(--card);border-radius:8px;padding:12px 14px;overflow-x:auto;font:12.5px/1.5 ui-monospace,monospace;margin:8px 0}
details{margin:8px 0}summary{cursor:pointer})";

std::string Summary(const ReportContent& content) {
  std::string html = "<div class=cards>\n";
  for (const auto& [name, value] : content.summary) {
    html += fmt::format("<div class=card><b>{}</b><span>{}</span></div>\n", EscapeHtml(value),
                        EscapeHtml(name));
  }
  return html + "</div>\n";
}

ReportSeries Series(const std::vector<MetricPoint>& metrics, const std::string& key,
                    const std::string& name) {
  ReportSeries series{name, {}};
  for (const MetricPoint& m : metrics) {
    const auto it = m.extra.find(key);
    const bool own = key == "loss" || key == "lr";
    if (!own && it == m.extra.end()) continue;
    series.points.emplace_back(static_cast<double>(m.step), key == "loss" ? m.loss
                                                            : key == "lr" ? m.lr
                                                                          : it->second);
  }
  return series;
}

std::string Charts(const std::vector<MetricPoint>& m) {
  if (m.empty()) return "";
  return "<h2>Curves</h2>\n<div class=charts>\n" +
         SvgChart("Loss", {Series(m, "loss", "training"), Series(m, "val_loss", "validation")},
                  true, false) +
         SvgChart(
             "Accuracy",
             {Series(m, "accuracy", "training batches"), Series(m, "val_accuracy", "validation")},
             true, true) +
         SvgChart("Learning rate", {Series(m, "lr", "")}, false, false) +
         SvgChart("Images per second", {Series(m, "images_per_s", "")}, false, false) + "</div>\n";
}

std::string Matrix(const ReportContent& content) {
  const size_t n = content.classes.size();
  std::string html = fmt::format(
      "<h2>Confusion matrix, step {}</h2>\n<p class=soft>Rows: true class. Columns: what the "
      "network said.</p>\n<div class=scroll><table class=matrix><tr><th></th><th>right</th>",
      content.evaluated_step);
  for (const std::string& name : content.classes) {
    html += fmt::format("<th class=column>{}</th>", EscapeHtml(name));
  }
  html += "</tr>\n";
  for (size_t row = 0; row < n; ++row) {
    int64_t total = 0;
    for (size_t c = 0; c < n; ++c) total += content.confusion[row * n + c];
    const auto share = [&](int64_t count) {
      return static_cast<double>(count) / static_cast<double>(total);
    };
    html += fmt::format(
        "<tr><th>{}</th><td>{}</td>", EscapeHtml(content.classes[row]),
        total == 0 ? "" : fmt::format("{:.1f} %", 100 * share(content.confusion[row * n + row])));
    for (size_t c = 0; c < n; ++c) {
      const int64_t count = content.confusion[row * n + c];
      html += count == 0
                  ? "<td></td>"
                  : fmt::format("<td style=\"background:rgba(var(--{}),{:.2f})\">{}</td>",
                                c == row ? "hit" : "miss", 0.08 + 0.62 * share(count), count);
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string ConfusedPairs(const ReportContent& content) {
  const size_t n = content.classes.size();
  std::vector<std::pair<int64_t, size_t>> pairs;  // count, index into the matrix
  for (size_t i = 0; i < n * n; ++i) {
    if (i / n != i % n && content.confusion[i] > 0) pairs.emplace_back(content.confusion[i], i);
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  pairs.resize(std::min(pairs.size(), kMostPairs));
  std::string html =
      fmt::format("<h2>Most confused classes, step {}</h2>\n", content.evaluated_step) +
      "<div class=scroll><table><tr><th>true class</th><th>taken for</th><th>images</th></tr>\n";
  for (const auto& [count, i] : pairs) {
    html +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                    EscapeHtml(content.classes[i / n]), EscapeHtml(content.classes[i % n]), count);
  }
  return html + "</table></div>\n";
}

std::string Mistakes(const ReportContent& content) {
  if (content.mistakes.empty()) return "";
  std::string html =
      "<h2>Worst mistakes</h2>\n<p class=soft>Wrong, and most sure of it.</p>\n<div "
      "class=mistakes>\n";
  for (const ReportMistake& m : content.mistakes) {
    const std::string uri = ThumbnailUri(m.path);
    html += fmt::format(
        "<figure title=\"{}\">{}<figcaption><b>{}</b> taken for<br><b>{}</b> ({:.0f} %)<br><span "
        "class=soft>{}</span></figcaption></figure>\n",
        EscapeHtml(m.path), uri.empty() ? "" : fmt::format("<img alt=\"\" src=\"{}\">", uri),
        EscapeHtml(content.classes[static_cast<size_t>(m.label)]),
        EscapeHtml(content.classes[static_cast<size_t>(m.predicted)]),
        100 * static_cast<double>(m.confidence),
        EscapeHtml(std::filesystem::path(m.path).filename().string()));
  }
  return html + "</div>\n";
}

std::string Lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += EscapeHtml(line) + "\n";
  return fmt::format("<pre>{}</pre>\n", text);
}

}  // namespace

std::string EscapeHtml(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

void WriteReport(const std::filesystem::path& file, const ReportContent& content) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n<meta name=viewport "
      "content=\"width=device-width,initial-scale=1\">\n<title>{}</title>\n<style>{}</style>\n"
      "<h1>{}</h1>\n",
      EscapeHtml(content.title), kStyle, EscapeHtml(content.title));
  for (const std::string& line : content.machine) {
    html += fmt::format("<div class=soft>{}</div>\n", EscapeHtml(line));
  }
  html += Summary(content) + Charts(content.metrics);
  if (!content.confusion.empty()) {
    html += content.classes.size() <= kMostMatrixClasses ? Matrix(content) : ConfusedPairs(content);
  }
  html += Mistakes(content);
  html += "<h2>Use it</h2>\n" + Lines(content.usage);
  html += "<h2>How it was made</h2>\n" + Lines({content.command});
  html += "<details><summary>The whole configuration</summary>\n" + Lines({content.toml}) +
          "</details>\n</html>\n";
  WriteFileAtomically(file, html);
}

}  // namespace parax
