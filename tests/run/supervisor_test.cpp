// SPDX-License-Identifier: Apache-2.0
#include "gnmr/run/supervisor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "gnmr/core/error.h"
#include "gnmr/io/journal_reader.h"
#include "gnmr/run/random_units.h"
#include "io/file_size_limit.h"
#include "io/temporary_folder.h"

namespace gnmr::run {
namespace {

using Indices = std::vector<UnitIndex>;

constexpr std::size_t kUnits = 6;

std::vector<Unit> units(const Indices& forced = {}) {
  std::vector<Unit> all;
  for (UnitIndex unit = 0; unit < kUnits; ++unit) {
    const bool is_forced = std::find(forced.begin(), forced.end(), unit) != forced.end();
    all.push_back({.name = "unit" + std::to_string(unit), .forced = is_forced});
  }
  return all;
}

Options quick_options(int lag = 0) {
  Options options;
  options.warmup_samples = 3;
  options.lock_steps = 4;
  options.max_o = 3;
  options.common_share = 1;
  options.lag = lag;
  return options;
}

/// Norms with spikes in some units in some steps, the same in every run.
std::vector<double> norms(std::int64_t step) {
  std::vector<double> values(kUnits, 1.0);
  for (std::size_t unit = 0; unit < kUnits; ++unit) {
    if (step > 5 && (step * 7 + static_cast<std::int64_t>(unit) * 5) % 13 == 0) values[unit] = 40;
  }
  return values;
}

/// What ran high in a step and what was decided after it.
struct Step {
  Indices high;
  std::int64_t recovered;
  Indices decided;
  bool operator==(const Step&) const = default;
};

Step take(Supervisor& supervisor, std::int64_t step) {
  supervisor.begin(step);
  const auto high = supervisor.high();
  Step taken{{high.begin(), high.end()}, supervisor.recovered_count(), {}};
  const std::vector<double> values = norms(step);
  const Decision decision = supervisor.report({.step = step, .norms = values}, {.loss = 1.0}).decision;
  taken.decided.assign(decision.recovered.begin(), decision.recovered.end());
  return taken;
}

std::vector<Step> take_all(Supervisor& supervisor, std::int64_t first, std::int64_t last) {
  std::vector<Step> steps;
  for (std::int64_t step = first; step <= last; ++step) steps.push_back(take(supervisor, step));
  return steps;
}

/// A run with a gate that never closes: a step is reported while the next one runs, but the last one at once.
std::vector<Step> take_all_late(Supervisor& supervisor, std::int64_t first, std::int64_t last) {
  std::vector<Step> steps;
  const auto report = [&](std::int64_t step) {
    const std::vector<double> values = norms(step);
    const Decision decision = supervisor.report({.step = step, .norms = values}, {.loss = 1.0}).decision;
    steps[static_cast<std::size_t>(step - first)].decided.assign(decision.recovered.begin(), decision.recovered.end());
  };
  for (std::int64_t step = first; step <= last; ++step) {
    EXPECT_EQ(supervisor.begin(step).batch, step);
    const auto high = supervisor.high();
    steps.push_back({{high.begin(), high.end()}, supervisor.recovered_count(), {}});
    if (step > first) report(step - 1);
  }
  report(last);
  return steps;
}

TEST(Supervisor, ADecisionHoldsFromTheNextStepOnWithLagOneLater) {
  for (const int lag : {0, 1}) {
    Supervisor supervisor(units(), {.options = quick_options(lag)}, {});
    const std::vector<Step> steps = lag == 0 ? take_all(supervisor, 1, 40) : take_all_late(supervisor, 1, 40);
    std::size_t used = 0;
    for (std::size_t step = 0; step < steps.size(); ++step) {
      const auto back = static_cast<std::size_t>(lag) + 1;
      EXPECT_EQ(steps[step].high, step >= back ? steps[step - back].decided : Indices{}) << "step " << step + 1;
      EXPECT_EQ(steps[step].recovered, static_cast<std::int64_t>(steps[step].high.size()));
      used += steps[step].high.size();
    }
    EXPECT_GT(used, 20u);
    // The decisions are those of a controller on its own.
    Controller alone(units(), quick_options(lag), norms_only());
    for (std::int64_t step = 1; step <= 40; ++step) {
      const std::vector<double> values = norms(step);
      alone.begin(step);
      const Decision& decision = alone.report({.step = step, .norms = values}).decision;
      EXPECT_TRUE(std::equal(decision.recovered.begin(), decision.recovered.end(),
                             steps[static_cast<std::size_t>(step - 1)].decided.begin(),
                             steps[static_cast<std::size_t>(step - 1)].decided.end()));
    }
  }
}

TEST(Supervisor, TheJournalTellsWhyAnAlarmHadNoRerun) {
  const test::TemporaryFolder folder;
  Options options = quick_options();
  options.max_trials = 0;
  options.selector = Selector::trial;
  {
    Supervisor supervisor(units(), {.options = options, .backend = {.can_rerun = true, .expected_errors = {0.01}}},
                          {.journal = folder.file("j")});
    for (std::int64_t step = 1; step <= 10; ++step) {
      supervisor.begin(step);
      std::vector<double> values(kUnits, 1.0);
      std::vector<double> patrol(kUnits, 0.01);
      if (step == 7 || step == 9) values[2] = 40;
      if (step == 9) patrol[2] = 5;
      const Outcome& outcome = supervisor.report({.step = step, .norms = values, .errors = patrol}, {.loss = 1.0});
      EXPECT_EQ(outcome.action, Action::apply);
    }
    EXPECT_TRUE(supervisor.close());
  }
  for (const io::JournalStepEntry& entry : io::read_journal(folder.file("j")).steps) {
    EXPECT_EQ(entry.step->alarm, entry.number == 7 ? "dismissed" : entry.number == 9 ? "spent" : "") << entry.number;
  }
}

TEST(Supervisor, WatchingDecidesAndSwitchesNothing) {
  Supervisor armed(units(), {.options = quick_options()}, {});
  Supervisor watching(units(), {.options = quick_options(), .switches = false}, {});
  Supervisor late(units(), {.options = quick_options(), .watch_steps = 20}, {});
  EXPECT_EQ(watching.mode(), Mode::watch);
  for (std::int64_t step = 1; step <= 40; ++step) {
    const Step expected = take(armed, step);
    const Step watched = take(watching, step);
    const Step later = take(late, step);
    EXPECT_EQ(watched.decided, expected.decided);
    EXPECT_TRUE(watched.high.empty());
    EXPECT_EQ(watched.recovered, 0);
    EXPECT_EQ(later.high, step <= 20 ? Indices{} : expected.high) << step;
  }
}

TEST(Supervisor, RulesForceUnitsAndTheLastOneWins) {
  const std::vector<SwitchRule> rules =
      parse_switch_rules({"unit0=high@3:6", "unit1=high@3:6", "unit1=low@5:", "unit5=high"});
  Supervisor supervisor(units({0, 1, 5}), {.options = quick_options(), .rules = rules}, {});
  std::size_t recovered = 0;
  for (std::int64_t step = 1; step <= 40; ++step) {
    const Step taken = take(supervisor, step);
    const auto is_high = [&](UnitIndex unit) {
      return std::find(taken.high.begin(), taken.high.end(), unit) != taken.high.end();
    };
    EXPECT_EQ(is_high(0), step >= 3 && step <= 6) << step;
    EXPECT_EQ(is_high(1), step >= 3 && step <= 4) << step;
    EXPECT_TRUE(is_high(5));
    const auto forced = static_cast<std::int64_t>(is_high(0)) + static_cast<std::int64_t>(is_high(1)) + 1;
    EXPECT_EQ(taken.recovered, static_cast<std::int64_t>(taken.high.size()) - forced);
    EXPECT_TRUE(std::is_sorted(taken.high.begin(), taken.high.end()));
    recovered += static_cast<std::size_t>(taken.recovered);
  }
  EXPECT_GT(recovered, 5u) << "the others are still the controller's";
}

TEST(Supervisor, RandomUnitsTakeTheControllersPlace) {
  const std::vector<Unit> all = units({2});
  const auto choose = [&](std::int64_t step) {
    return random_recoveries(all, {.share = 0.4, .lock_steps = 4, .seed = 9}, step);
  };
  Supervisor supervisor(all, {.options = quick_options(), .choose = choose}, {});
  std::size_t used = 0;
  for (std::int64_t step = 1; step <= 80; ++step) {
    // They are chosen among those that nobody forces.
    Indices expected;
    for (const UnitIndex place :
         units_in_recovery({.units = kUnits - 1, .share = 0.4, .lock_steps = 4, .seed = 9}, step)) {
      expected.push_back(place < 2 ? place : place + 1);
    }
    EXPECT_EQ(take(supervisor, step).high, expected);
    used += expected.size();
  }
  EXPECT_GT(used, 60u);
}

TEST(Supervisor, TheKillSwitchIsImmediateAndWrittenOnce) {
  const test::TemporaryFolder folder;
  Supervisor supervisor(units(), {.options = quick_options()}, {.journal = folder.file("journal")});
  take_all(supervisor, 1, 30);
  supervisor.set_mode(Mode::high, "a test");
  supervisor.set_mode(Mode::high, "again");
  EXPECT_EQ(take(supervisor, 31).high, (Indices{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(supervisor.recovered_count(), 0) << "that is no recovery";
  supervisor.set_mode(Mode::watch, "a test");
  EXPECT_TRUE(take(supervisor, 32).high.empty());
  supervisor.set_mode(Mode::armed, "a test");
  Supervisor calm(units(), {.options = quick_options()}, {});
  take_all(calm, 1, 32);
  EXPECT_EQ(take_all(supervisor, 33, 50), take_all(calm, 33, 50)) << "decisions went on meanwhile";
  supervisor.note("a remark");
  EXPECT_TRUE(supervisor.flush());
  EXPECT_EQ(io::read_journal(folder.file("journal")).notes.size(), 1u) << "flushed";
  EXPECT_TRUE(supervisor.close());
  const io::Journal journal = io::read_journal(folder.file("journal"));
  ASSERT_EQ(journal.modes.size(), 3u);
  EXPECT_EQ(journal.modes[0].why, "a test");
  EXPECT_EQ(journal.steps.size(), 50u);
  EXPECT_EQ(journal.header->units.size(), kUnits);
}

TEST(Supervisor, GoesOnFromAnyStepAsIfUnbroken) {
  const SupervisorSettings settings{.options = quick_options()};
  Supervisor unbroken(units(), settings, {});
  std::vector<std::string> saved{unbroken.save()};
  std::vector<Step> steps;
  for (std::int64_t step = 1; step <= 40; ++step) {
    steps.push_back(take(unbroken, step));
    saved.push_back(unbroken.save());
  }
  for (std::size_t done = 0; done < 40; ++done) {
    Supervisor resumed(units(), settings, {});
    const RestoreReport report = resumed.restore(saved[done]);
    EXPECT_TRUE(report.released_units.empty());
    const std::vector<Step> rest = take_all(resumed, static_cast<std::int64_t>(done) + 1, 40);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), steps.begin() + static_cast<std::ptrdiff_t>(done)))
        << "after " << done;
    EXPECT_EQ(resumed.save(), saved.back());
  }
}

TEST(Supervisor, ASmallerBudgetReleasesWhatNoLongerFits) {
  Supervisor before(units(), {.options = quick_options()}, {});
  std::int64_t step = 0;
  Step last;
  do last = take(before, ++step);
  while (last.decided.size() < 2);
  Options tight = quick_options();
  tight.max_o = 1;
  Supervisor after(units(), {.options = tight}, {});
  EXPECT_EQ(after.restore(before.save()).released_units.size(), last.decided.size() - 1);
  after.begin(step + 1);
  EXPECT_EQ(after.high().size(), 1u);
  EXPECT_THROW(after.restore("nonsense"), Error);
}

TEST(Supervisor, ADamagedAuditIsNamed) {
  Supervisor supervisor(units(), {.options = quick_options()}, {});
  take(supervisor, 1);
  const std::string before = supervisor.save();
  for (const char* const audit : {"nonsense", "{}", "[[1]]", "[[true,true]]"}) {
    const std::string bytes = io::encode_state(supervisor.controller().save(), {{"audit", audit}});
    const std::string error = test::error_of<Error>([&] { supervisor.restore(bytes); });
    EXPECT_TRUE(error.starts_with("controller state: the section audit is damaged: ")) << error;
  }
  EXPECT_EQ(supervisor.save(), before);
  EXPECT_NO_THROW(supervisor.restore(io::encode_state(supervisor.controller().save(), {{"audit", "[[1,true]]"}})));
}

TEST(Supervisor, AFullDiskChangesNoDecisionAndNothingThrows) {
  Supervisor calm(units(), {.options = quick_options()}, {});
  const std::vector<Step> expected = take_all(calm, 1, 200);
  for (const bool stays_full : {false, true}) {
    const test::TemporaryFolder folder;
    const SupervisorFiles files{.journal = folder.file("journal"), .signals = folder.file("signals")};
    Supervisor supervisor(units(), {.options = quick_options()}, files);
    supervisor.flush();
    {
      const test::FileSizeLimit limit(2000);
      EXPECT_EQ(take_all(supervisor, 1, 200), expected);
      EXPECT_FALSE(supervisor.flush(std::chrono::milliseconds(50)));
      EXPECT_LT(io::read_journal(folder.file("journal")).steps.size(), 100u);
      if (stays_full) {
        EXPECT_FALSE(supervisor.close());
      }
    }
    // What waited is written when there is room again; what could not wait any longer is counted.
    EXPECT_EQ(supervisor.close(), !stays_full);
    EXPECT_EQ(supervisor.dropped() > 100, stays_full);
    EXPECT_EQ(io::read_journal(folder.file("journal")).steps.size() == 200, !stays_full);
  }
}

TEST(Supervisor, SignalsAreWrittenEverySoManySteps) {
  const test::TemporaryFolder folder;
  Supervisor supervisor(units(), {.options = quick_options()}, {.signals = folder.file("signals"), .signals_every = 5});
  take_all(supervisor, 1, 23);
  EXPECT_TRUE(supervisor.close());
  io::SignalsReader reader(folder.file("signals"));
  io::SignalsRow row;
  std::vector<std::int64_t> steps;
  while (reader.next(row)) steps.push_back(row.step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{5, 10, 15, 20}));
  Supervisor none(units(), {.options = quick_options()}, {.signals = folder.file("none"), .signals_every = 0});
  take_all(none, 1, 3);
  EXPECT_FALSE(std::filesystem::exists(folder.file("none")));
}

/// Errors of `kUnits` units with two sites: in each step those of one unit, in turn.
std::vector<double> errors_at(std::int64_t step) {
  std::vector<double> errors(2 * kUnits, std::numeric_limits<double>::quiet_NaN());
  const auto unit = static_cast<std::size_t>(step) % kUnits;
  errors[2 * unit] = static_cast<double>(step);
  errors[2 * unit + 1] = 0.5;
  return errors;
}

void take_with_errors(const SupervisorFiles& files, std::int64_t first, std::int64_t last) {
  Supervisor supervisor(units(), {.options = quick_options(), .backend = {.sites = 2}}, files);
  for (std::int64_t step = first; step <= last; ++step) {
    supervisor.begin(step);
    const std::vector<double> values(kUnits, 1.0);
    // In step 4 nothing is measured.
    const std::vector<double> errors = step == 4 ? std::vector<double>() : errors_at(step);
    supervisor.report({.step = step, .norms = values}, {.errors = errors});
  }
  EXPECT_TRUE(supervisor.close());
}

std::vector<io::SignalsRow> rows_of(const std::string& path) {
  io::SignalsReader reader(path);
  EXPECT_EQ(reader.sites(), 2U);
  std::vector<io::SignalsRow> rows;
  for (io::SignalsRow row; reader.next(row);) rows.push_back(row);
  return rows;
}

TEST(Supervisor, ErrorsAreWrittenInTheStepsThatHaveAny) {
  const test::TemporaryFolder folder;
  take_with_errors({.errors = folder.file("errors")}, 1, 8);
  const std::vector<io::SignalsRow> rows = rows_of(folder.file("errors"));
  std::vector<std::int64_t> steps;
  for (const io::SignalsRow& row : rows) {
    steps.push_back(row.step);
    const std::vector<double> expected = errors_at(row.step);
    ASSERT_EQ(row.values.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (std::isnan(expected[i])) {
        EXPECT_TRUE(std::isnan(row.values[i]));
      } else {
        EXPECT_EQ(row.values[i], static_cast<float>(expected[i]));
      }
    }
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 5, 6, 7, 8}));
  take_with_errors({.errors = folder.file("errors"), .existing = io::ExistingFile::resume, .next_step = 7}, 7, 9);
  EXPECT_EQ(rows_of(folder.file("errors")).size(), 10U) << "a resumed run goes on in the file";
}

TEST(Supervisor, RareRowsHaveTheLastErrorOfEachUnit) {
  const test::TemporaryFolder folder;
  take_with_errors({.errors = folder.file("errors"), .signals_every = 8}, 1, 20);
  const std::vector<io::SignalsRow> rows = rows_of(folder.file("errors"));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].step, 8);
  // Units 1, 2, 3 in steps 1, 2, 3; not unit 4; 5 and 0 in steps 5 and 6; 1 and 2 again in steps 7 and 8.
  const std::vector<float> first{6, 7, 8, 3, 0, 5};
  for (std::size_t unit = 0; unit < kUnits; ++unit) {
    if (unit == 4) {
      EXPECT_TRUE(std::isnan(rows[0].values[2 * unit]));
    } else {
      EXPECT_EQ(rows[0].values[2 * unit], first[unit]);
    }
  }
  take_with_errors({.errors = folder.file("none"), .signals_every = 0}, 1, 3);
  EXPECT_FALSE(std::filesystem::exists(folder.file("none")));
}

TEST(Supervisor, AModeThatComesAfterBeginStillStopsARerunOfTheStep) {
  for (const bool is_watched : {false, true}) {
    Supervisor supervisor(units(), {.options = quick_options(), .backend = {.can_rerun = true}}, {});
    for (std::int64_t step = 1; step <= 8; ++step) {
      std::vector<double> values(kUnits, 1.0);
      if (step == 8) values[2] = 40;
      supervisor.begin(step);
      if (step == 8 && is_watched) supervisor.set_mode(Mode::watch, "a test");
      const Outcome& outcome = supervisor.report({.step = step, .norms = values}, {});
      EXPECT_EQ(outcome.alarmed, step == 8);
      EXPECT_EQ(outcome.action, step == 8 && !is_watched ? Action::rerun : Action::apply) << step;
    }
  }
}

TEST(Supervisor, RulesChangeWhatIsHighAtOnce) {
  Supervisor supervisor(units(), {.options = quick_options()}, {});
  supervisor.begin(1);
  EXPECT_TRUE(supervisor.high().empty());
  supervisor.set_rules(parse_switch_rules({"unit3=high"}));
  EXPECT_EQ(supervisor.high().size(), 1u);
  const std::vector<double> values(kUnits, 1.0);
  supervisor.report({.step = 1, .norms = values}, {});
  supervisor.set_rules({});
  EXPECT_TRUE(supervisor.high().empty());
}

}  // namespace
}  // namespace gnmr::run
