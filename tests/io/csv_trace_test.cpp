// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/csv_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <sstream>

#include "gnmr/io/trace_writer.h"
#include "io/trace_testing.h"

namespace gnmr::io {
namespace {

using testing::error_in;
using testing::kInf;
using testing::kNan;
using testing::kNone;
using testing::message_of;
using testing::read_text;
using testing::Row;
using Names = std::vector<std::string>;
using Rows = std::vector<Row>;

TEST(CsvTrace, ReadsUnitsStepsAndNorms) {
  const auto trace = read_text("step,a,b\n0,0.5,1\n3,2,1e-3\n");
  EXPECT_EQ(trace.units, (Names{"a", "b"}));
  EXPECT_EQ(trace.rows, (Rows{{0, {0.5, 1}}, {3, {2, 1e-3}}}));
  EXPECT_TRUE(trace.notes.empty());
}

TEST(CsvTrace, EveryFormOfCell) {
  const auto trace = read_text(
      "step,a\n1,nan\n2,-NaN\n3,Inf\n4,+infinity\n5,1e400\n6,1e-400\n7,\n8,.5\n9,5.\n10,+1\n11,-0\n"
      "12,-1e-400\n13,\"7\"\n14,\"\"\n15,00.50\n");
  EXPECT_EQ(trace.rows, (Rows{{1, {kNan}},
                              {2, {kNan}},
                              {3, {kInf}},
                              {4, {kInf}},
                              {5, {kInf}},
                              {6, {0}},
                              {7, {kNone}},
                              {8, {0.5}},
                              {9, {5}},
                              {10, {1}},
                              {11, {0}},
                              {12, {0}},
                              {13, {7}},
                              {14, {kNone}},
                              {15, {0.5}}}));
}

TEST(CsvTrace, StepsAreSigned64Bits) {
  const auto trace = read_text("step,a\n-9223372036854775808,1\n-5,1\n+7,1\n9223372036854775807,1\n");
  EXPECT_EQ(trace.rows.front().step, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(trace.rows[2].step, 7);
  EXPECT_EQ(trace.rows.back().step, std::numeric_limits<std::int64_t>::max());
}

TEST(CsvTrace, LineEndsBlankLinesAndByteOrderMark) {
  const Rows expected{{1, {0.5, 2}}, {2, {0.25, kNone}}};
  EXPECT_EQ(read_text("\xEF\xBB\xBF\r\n \t\r\nstep,a,b\r\n1,0.5,2\r\n\r\n \r\n2,0.25,\r\n").rows, expected);
  EXPECT_EQ(read_text("step,a,b\n1,0.5,2\n2,0.25,").rows, expected);
  EXPECT_EQ(read_text("step,a,b\r\n1,0.5,2\r\n2,0.25,\r").rows, expected);
}

TEST(CsvTrace, BlanksRoundUnquotedCells) {
  const auto trace = read_text(" step ,\ta , b c\t\n 1 ,\t0.5 , 2\n2, , 3 \n");
  EXPECT_EQ(trace.units, (Names{"a", "b c"}));
  EXPECT_EQ(trace.rows, (Rows{{1, {0.5, 2}}, {2, {kNone, 3}}}));
}

TEST(CsvTrace, QuotedNames) {
  const auto trace = read_text("\"step\",\"a, \"\"q\"\"\",\" b \",\"two\r\nlines\"\n\"1\",1,\"2\",3\n");
  EXPECT_EQ(trace.units, (Names{"a, \"q\"", " b ", "two\r\nlines"}));
  EXPECT_EQ(trace.rows, (Rows{{1, {1, 2, 3}}}));
}

TEST(CsvTrace, HeaderOnlyIsATraceWithoutRows) { EXPECT_TRUE(read_text("step,a").rows.empty()); }

struct Fault {
  const char* text;
  const char* message;
};

TEST(CsvTrace, FaultsNameLineAndColumn) {
  const Fault faults[] = {
      {"", "run: the file is empty"},
      {"\n \n", "run: the file is empty"},
      {"step\n1\n", "run: line 1, column 1: the header names no unit"},
      {"Stop,a\n1,2\n", "run: line 1, column 1: the header must begin with \"step\", not \"Stop\""},
      {"step,a,,b\n", "run: line 1, column 3: a unit without a name"},
      {"step,a,\"\"\n", "run: line 1, column 3: a unit without a name"},
      {"step,a,b,a\n", "run: line 1, column 4: the name \"a\" is there twice"},
      {"step,a,b\xff\n", "run: line 1, column 3: the name \"b\xEF\xBF\xBD\" is not UTF-8"},
      {"step,a\n1,2\n\n2\n", "run: line 4, column 1: the row has 1 cell, the header 2"},
      {"step,a,b\n1,2,3\n2,0.", "run: line 3, column 2: the row has 2 cells, the header 3"},
      {"step,a,b\n1,2,3\n2", "run: line 3, column 1: the row has 1 cell, the header 3"},
      {"step,a\n1,2,3\n", "run: line 2, column 3: the row has 3 cells, the header 2"},
      {"step,a\n1,2,3,4,5\n", "run: line 2, column 3: the row has 5 cells, the header 2"},
      {"step,a\n1,2,\n", "run: line 2, column 3: the row has 3 cells, the header 2"},
      {"step,a\n1,\"2\",\"3\"\n", "run: line 2, column 3: the row has 3 cells, the header 2"},
      {"step,a,b\n1,2,x\n", "run: line 2, column 3: \"x\" is not a number"},
      {"step,a,b\n1,2 3,1\n", "run: line 2, column 2: \"2 3\" is not a number"},
      {"step,a,b\n1,1e,1\n", "run: line 2, column 2: \"1e\" is not a number"},
      {"step,a,b\n1,0x1,1\n", "run: line 2, column 2: \"0x1\" is not a number"},
      {"step,a,b\n1,1\r,1\n", "run: line 2, column 2: \"1\\r\" is not a number"},
      {"step,a,b\n1,\" 2\",1\n", "run: line 2, column 2: \" 2\" is not a number"},
      {"step,a,b\n1,nan(2),1\n", "run: line 2, column 2: \"nan(2)\" is not a number"},
      {"step,a,b\n1,2,-0.5\n", "run: line 2, column 3: the norm -0.5 is negative"},
      {"step,a,b\n1,-inf,1\n", "run: line 2, column 2: the norm -inf is negative"},
      {"step,a,b\n1,-1e400,1\n", "run: line 2, column 2: the norm -1e400 is negative"},
      {"step,a\nx,1\n", "run: line 2, column 1: \"x\" is not a step, a whole number of 64 bits"},
      {"step,a\n1.0,1\n", "run: line 2, column 1: \"1.0\" is not a step, a whole number of 64 bits"},
      {"step,a\n,1\n", "run: line 2, column 1: \"\" is not a step, a whole number of 64 bits"},
      {"step,a\n9223372036854775808,1\n",
       "run: line 2, column 1: \"9223372036854775808\" is not a step, a whole number of 64 bits"},
      {"step,a\n1,2\"3\n", "run: line 2, column 2: a stray quote"},
      {"step,a\n1, \"3\"\n", "run: line 2, column 2: a stray quote"},
      {"step,a\n1,\"3\" \n", "run: line 2, column 2: text after the closing quote"},
      {"step,a,b\n1,2,\"3\n4,5,6\n", "run: line 2, column 3: the quote is never closed"},
      {"step,\"a\nb\",\"c\n\"d\n", "run: line 2, column 3: text after the closing quote"},
      {"step,\"a\n\",b\n1,2,x\n", "run: line 3, column 3: \"x\" is not a number"},
  };
  for (const Fault& fault : faults) EXPECT_EQ(error_in(fault.text, {.format = TraceFormat::csv}), fault.message);
}

TEST(CsvTrace, StepsMustIncrease) {
  EXPECT_EQ(error_in("step,a\n5,1\n5,1\n").substr(0, 57), "run: line 3, column 1: step 5 does not come after step 5 ");
  EXPECT_EQ(error_in("step,a\n5,1\n\n4,1\n").substr(0, 57),
            "run: line 4, column 1: step 4 does not come after step 5 ");
}

TEST(CsvTrace, RowsBeforeAFaultAreGiven) {
  for (const bool allow_restart : {false, true}) {
    const auto reader =
        open_trace(memory_byte_source("run", "step,a\n1,1\n2,2\n3,x\n"), {.allow_restart = allow_restart});
    TraceRow row;
    EXPECT_TRUE(reader->next(row));
    EXPECT_TRUE(reader->next(row));
    EXPECT_EQ(row.step, 2);
    EXPECT_EQ(message_of([&] { reader->next(row); }), "run: line 4, column 2: \"x\" is not a number");
  }
}

// Rows far longer than the reader's buffer, and cells written in many ways, against what was put in.
TEST(CsvTrace, RandomTracesReadBackExactly) {
  std::mt19937_64 random(3);
  std::lognormal_distribution<double> norms(-3, 4);
  for (const std::size_t units : {1U, 7U, 300U, 60000U}) {
    std::string text = "step";
    for (std::size_t i = 0; i < units; ++i) text += ",u" + std::to_string(i);
    text += "\n";
    Rows expected;
    for (int step = 0; step < 5; ++step) {
      Row row{.step = step, .cells = {}};
      text += std::to_string(step);
      for (std::size_t i = 0; i < units; ++i) {
        const double norm = norms(random);
        char cell[64];
        switch (random() % 8) {
          case 0:
            text += ",";
            row.cells.push_back(kNone);
            continue;
          case 1:
            text += ",NaN";
            row.cells.push_back(kNan);
            continue;
          case 2:
            std::snprintf(cell, sizeof cell, ", +%.17g ", norm);
            break;
          case 3:
            std::snprintf(cell, sizeof cell, ",%.20e", norm);
            break;
          case 4:
            std::snprintf(cell, sizeof cell, ",\"%.17g\"", norm);
            break;
          default:
            std::snprintf(cell, sizeof cell, ",%.17g", norm);
            break;
        }
        text += cell;
        row.cells.push_back(norm);
      }
      text += step % 2 == 0 ? "\n" : "\r\n";
      expected.push_back(std::move(row));
    }
    EXPECT_EQ(read_text(text).rows, expected);
  }
}

TEST(CsvTrace, WriterAndReaderAgree) {
  const Names units{"plain", "a,b", "say \"x\"", " blank ", "two\nlines", "\xC3\xA9"};
  std::ostringstream out;
  TraceWriter writer(out, units);
  writer.write(-3, std::vector<double>{0.1, 1e-300, 5e-324, kInf, kNan, 0});
  writer.write(4, std::vector<double>{1, 2, 3, 4, 5, 6}, std::vector<std::uint8_t>{1, 0, 1, 0, 0, 1});
  const auto trace = read_text(out.str());
  EXPECT_EQ(trace.units, units);
  EXPECT_EQ(trace.rows, (Rows{{-3, {0.1, 1e-300, 5e-324, kInf, kNan, 0}}, {4, {1, kNone, 3, kNone, kNone, 6}}}));
  EXPECT_EQ(message_of([&] { writer.write(5, std::vector<double>{1}); }), "expected 6 norms, got 1");
}

TEST(CsvTrace, GoldenFormsFile) {
  const auto trace = testing::read_path(std::string(GNMR_GOLDEN_DIR) + "/csv_forms.csv");
  EXPECT_EQ(trace.units, (Names{"layers.0, \"q\"", "layers.1", "layers.2"}));
  ASSERT_EQ(trace.rows.size(), 40U);
  EXPECT_EQ(trace.rows[25].cells[0], kNan);
  EXPECT_EQ(trace.rows[28].cells[0], kInf);
  EXPECT_EQ(trace.rows[29].cells[1], 0);
  EXPECT_EQ(trace.rows[31].cells[0], kNone);
}

}  // namespace
}  // namespace gnmr::io
