// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/html.h"

#include <gtest/gtest.h>

#include <limits>

#include "gnmr/report/figure.h"
#include "gnmr/report/number_format.h"

namespace gnmr::report {
namespace {

TEST(Html, TextIsData) {
  EXPECT_EQ(escaped("</script><b a=\"1\" c='2'>&amp;"),
            "&lt;/script&gt;&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;");
  EXPECT_EQ(escaped("caf\xC3\xA9"), "caf\xC3\xA9");
  EXPECT_EQ(escaped("a\xFF"), "a\xEF\xBF\xBD");
  EXPECT_EQ(escaped(std::string("\x1B[0m\0", 5)), "\xEF\xBF\xBD[0m\xEF\xBF\xBD");
}

TEST(Html, TablesEscapeAndFill) {
  Table table("T\"");
  table.column("<a>", false, "h\"");
  table.column("n", true);
  table.row({"<u>", ""});
  const std::string html = table.html();
  EXPECT_NE(html.find("aria-label=\"T&quot;\""), std::string::npos) << html;
  EXPECT_NE(html.find("title=\"h&quot;\">&lt;a&gt;</th>"), std::string::npos) << html;
  EXPECT_NE(html.find("<th scope=\"row\">&lt;u&gt;</th><td class=\"number\">–</td>"), std::string::npos) << html;
}

TEST(Html, AFigureHasWordsForThoseWithoutTheScript) {
  const std::string html = figure_html({.chart = "use", .title = "a<b", .alternative = "two \"rows\""}, 3);
  EXPECT_NE(html.find("aria-label=\"two &quot;rows&quot;\""), std::string::npos) << html;
  EXPECT_NE(html.find("<h3>a&lt;b</h3>"), std::string::npos) << html;
  EXPECT_NE(html.find("<p class=\"words\">two &quot;rows&quot;</p>"), std::string::npos) << html;
}

TEST(NumberFormat, ShortAndRound) {
  EXPECT_EQ(number_text(2.34567), "2.346");
  EXPECT_EQ(number_text(-0.0), "0");
  EXPECT_EQ(number_text(std::numeric_limits<double>::infinity()), "∞");
  EXPECT_EQ(number_text(std::numeric_limits<double>::quiet_NaN()), "NaN");
  EXPECT_EQ(number_text(std::optional<double>()), "–");
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(short_count(1234567), "1.23 M");
  EXPECT_EQ(percent_text(0.0357), "3.6 %");
  EXPECT_EQ(duration_text(12), "12 s");
  EXPECT_EQ(duration_text(200), "3 min 20 s");
  EXPECT_EQ(duration_text(7500), "2 h 5 min");
  EXPECT_EQ(counted(1, "step", "steps"), "1 step");
}

}  // namespace
}  // namespace gnmr::report
