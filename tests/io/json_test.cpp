// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/json.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "io/temporary_folder.h"

namespace gnmr::io {
namespace {

template <typename Read>
std::string list_error(const std::string& text, Read read) {
  return test::error_of<Error>([&] { read_json_list(text, "here", read); });
}

TEST(Json, ListsAreReadByPlace) {
  const int sum = read_json_list(R"([[1,true,"a"],[2,false,{"b":3}],[]])", "here", [](const JsonList& lists) {
    EXPECT_EQ(lists.size(), 3U);
    EXPECT_TRUE(lists.list(0).truth(1));
    EXPECT_EQ(lists.list(0).text(2), "a");
    EXPECT_EQ(lists.list(1).object(2).whole("b"), 3);
    EXPECT_EQ(lists.list(2).size(), 0U);
    return static_cast<int>(lists.list(0).whole(0) + lists.list(1).whole(0));
  });
  EXPECT_EQ(sum, 3);
}

TEST(Json, MessagesNameThePlaceInAList) {
  EXPECT_TRUE(list_error("[1", [](const JsonList&) {}).starts_with("here: not JSON: column 3: "));
  EXPECT_EQ(list_error("{}", [](const JsonList&) {}), "here: expected a list, got object");
  EXPECT_EQ(list_error("[1]", [](const JsonList& list) { list.text(0); }),
            "here: `[0]`: expected a string, got number");
  EXPECT_EQ(list_error("[1]", [](const JsonList& list) { list.whole(1); }), "here: `[1]` is missing");
  EXPECT_EQ(list_error("[[1,2]]", [](const JsonList& list) { list.list(0).truth(1); }),
            "here: `[0][1]`: expected true or false, got number");
  EXPECT_EQ(list_error(R"([{"a":[1.5]}])", [](const JsonList& list) { list.object(0).list("a").whole(0); }),
            "here: `[0].a[0]`: expected a whole number, got 1.5");
  EXPECT_EQ(list_error(R"([{"a":1}])", [](const JsonList& list) { list.object(0).list("a"); }),
            "here: `[0].a`: expected a list, got number");
  EXPECT_EQ(list_error("[null]", [](const JsonList& list) { list.list(0); }), "here: `[0]`: expected a list, got null");
}

TEST(Json, ALineHoldsAnyBytes) {
  EXPECT_EQ(json_line({{"b", 1}, {"a", "x\xFFy\n"}}), "{\"b\":1,\"a\":\"x\xEF\xBF\xBDy\\n\"}");
  EXPECT_EQ(json_line(std::vector<double>{0.1, 1e300}), "[0.1,1e+300]");
}

}  // namespace
}  // namespace gnmr::io
