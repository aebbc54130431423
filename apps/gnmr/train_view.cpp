// SPDX-License-Identifier: Apache-2.0
#include "gnmr/train_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gnmr/core/message_text.h"
#include "gnmr/live_view.h"
#include "gnmr/messages.h"
#include "gnmr/run/run_batches.h"

namespace gnmr::app {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kRedrawTime{150};
constexpr std::int64_t kPlainLines = 20;  // in a run, where nothing can move
constexpr std::size_t kBarWidth = 20;
constexpr double kSmoothing = 0.9;

}  // namespace

TrainView::TrainView(const TrainViewStyle& style) : style_(style), moving_(!style.quiet && is_terminal(style.stream)) {}

TrainView::~TrainView() { clear(); }

void TrainView::print(const std::string& line) {
  if (style_.quiet) return;
  clear();
  put(style_.stream, line + "\n");
}

void TrainView::clear() {
  if (drawn_) put(style_.stream, "\r\x1b[K");
  drawn_ = false;
}

void TrainView::started(const run::TrainStart& start) {
  start_ = start;
  begin_ = Clock::now();
  next_ = begin_;
  const run::RunInfo& info = start.info;
  print(fmt::format("model     {}, {:.2f} million parameters; {}", info.model,
                    static_cast<double>(info.parameters) / 1e6, start.engine));
  print(fmt::format("data      {}; {} tokens a step", start.data, info.batch_tokens));
  print(fmt::format("recipe    {}; {}", info.recipe, start.coverage));
  const std::string budget = fmt::format("at most {} of {} in recovery", info.budget, info.units);
  print(fmt::format("control   {}{}", info.controller, info.controller == "none" ? "" : "; " + budget));
  if (!start.control.empty()) print("          " + start.control);
  if (start.injected_faults > 0) {
    print(fmt::format("faults    {} INJECTED ({}): faults.csv says where", start.injected_faults, info.faults));
  }
  print(fmt::format("folder    {}{}", start.folder,
                    start.first_step > 1 ? fmt::format("; goes on with step {}", start.first_step) : ""));
}

void TrainView::stepped(const run::TrainLine& line) {
  ++steps_seen_;
  tokens_ += line.tokens;
  newest_batch_ = std::max(newest_batch_, run::batch_of(line));
  const bool first = steps_seen_ == 1 || !std::isfinite(recent_loss_);
  recent_loss_ = first ? line.loss : kSmoothing * recent_loss_ + (1 - kSmoothing) * line.loss;
  if (style_.quiet) return;
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  if (moving_) {
    if (now < next_ && newest_batch_ < start_.info.settings.steps) return;
    next_ = now + kRedrawTime;
    draw(line, seconds);
    return;
  }
  const std::int64_t every = std::max<std::int64_t>(start_.info.settings.steps / kPlainLines, 1);
  if (line.step % every == 0) draw(line, seconds);
}

void TrainView::draw(const run::TrainLine& line, double seconds) {
  // Batches that came again (lag 1) are steps more.
  const std::int64_t steps = start_.info.settings.steps + line.step - newest_batch_;
  const double speed = seconds > 0 ? static_cast<double>(tokens_) / seconds : 0;
  const double left = seconds / static_cast<double>(steps_seen_) * static_cast<double>(steps - line.step);
  const std::string skipped = line.applied ? "" : ", no update";
  const std::string facts =
      fmt::format("step {}/{}  loss {:.4f}  {:.0f} tokens/s  {} in recovery  {} left{}", line.step, steps, recent_loss_,
                  speed, line.recovered.value_or(0), clock_text(left), skipped);
  if (!moving_) {
    put(style_.stream, facts + "\n");
    return;
  }
  // A line that wraps could not be taken back.
  const std::size_t columns = style_for(style_.stream).columns;
  const std::string drawn = facts.size() + kBarWidth + 2 <= columns
                                ? progress_bar(line.step, steps, kBarWidth) + " " + facts
                                : facts.substr(0, columns > 0 ? columns - 1 : 0);
  put(style_.stream, "\r\x1b[K" + drawn);
  drawn_ = true;
}

void TrainView::evaluated(const run::EvalLine& line) {
  std::string text = fmt::format("step {}: held-out loss {:.4f} with all units high", line.step,
                                 line.loss_high.value_or(std::nan("")));
  if (line.loss_low) text += fmt::format(", {:.4f} on the low path", *line.loss_low);
  print(text);
}

void TrainView::noted(const std::string& text) { print("note: " + text); }

/// What the controller found and did.
void TrainView::print_control(const run::ControlCounts& counts, const run::StepSeconds& seconds) {
  const auto unit_steps = static_cast<double>(counts.high.unit_steps);
  print(fmt::format("{} ({:.2f} per thousand unit-steps), {}, {} at the end", counted(counts.risks, "risk"),
                    1000 * static_cast<double>(counts.risks) / unit_steps,
                    counted(counts.admissions, "recovery", "recoveries"),
                    counted(counts.standing, "standing recovery", "standing recoveries")));
  print(run::high_shares_text(counts.high.shares()));
  if (counts.alarms + counts.dismissed == 0) return;
  print(fmt::format(
      "{} alarmed, {} answered by the patrol{}; {} and {}, {:.1f}% of the "
      "steps' time; `gnmr explain` says what happened",
      counted(counts.alarms, "step"), counted(counts.dismissed, "alarm"),
      counts.held > 0 ? ", " + counted(counts.held, "update") + " held by the gate" : "",
      counted(counts.trials, "trial"), counted(counts.replays, "replay"), 100 * seconds.reruns / seconds.steps));
}

void TrainView::finished(const run::TrainOutcome& outcome) {
  const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  if (outcome.skipped_updates > 0) {
    print(counted(static_cast<std::uint64_t>(outcome.skipped_updates), "update was", "updates were") +
          " not applied: not finite, or held");
  }
  if (outcome.dropped_lines > 0) {
    print(counted(outcome.dropped_lines, "line") + " could not be written");
  }
  if (outcome.control.high.unit_steps > 0 && start_.info.controller != "none") {
    print_control(outcome.control, outcome.seconds);
  }
  if (outcome.refreshes > 0) {
    print(counted(outcome.refreshes, "scale was", "scales were") + " renewed before the interval was over (--refresh)");
  }
  if (outcome.seconds.steps > 0) {
    print(fmt::format("of the steps' time {:.2f}% went into norms (clipping needs them too) and {:.2f}% into control",
                      100 * outcome.seconds.norms / outcome.seconds.steps,
                      100 * outcome.seconds.control / outcome.seconds.steps));
  }
  if (!outcome.unsaved.empty()) {
    print(fmt::format("ended after step {}", outcome.last_step));  // what is not saved is the error that follows
    return;
  }
  if (!outcome.finished) {
    print(fmt::format("stopped after step {}; the same command with --resume goes on", outcome.last_step));
    return;
  }
  print(fmt::format("done in {}; `gnmr report {}` draws it", clock_text(seconds), start_.folder));
}

}  // namespace gnmr::app
