// SPDX-License-Identifier: Apache-2.0
#include "gnmr/io/journal_reader.h"

#include <algorithm>
#include <map>
#include <utility>

#include "gnmr/io/journal_format.h"
#include "gnmr/io/text_error.h"

namespace gnmr::io {
namespace {

// Sorts records into steps. The records of one step stand together in a journal, so a step that comes up again after
// another one starts anew. A resume ends the records of its step and of later ones.
class JournalCollector {
 public:
  void operator()(JournalHeader& header) {
    current_ = nullptr;
    journal_.header = std::move(header);
  }
  void operator()(JournalResume& resume) {
    current_ = nullptr;
    entries_.erase(entries_.lower_bound(resume.step), entries_.end());
    journal_.resumes.push_back(resume);
  }
  void operator()(JournalStep& step) {
    JournalStepEntry& found = entry(step.step);
    if (found.step) found = JournalStepEntry{.number = step.step};
    found.step = step;
  }
  void operator()(JournalEvent& event) { entry(event.step).events.push_back(std::move(event)); }
  void operator()(JournalTrial& trial) { entry(trial.step).trials.push_back(std::move(trial)); }
  void operator()(JournalMode& mode) {
    mode.after_step = last_step();
    journal_.modes.push_back(std::move(mode));
  }
  void operator()(JournalNote& note) {
    note.after_step = last_step();
    journal_.dropped += note.dropped;
    journal_.notes.push_back(std::move(note));
  }

  Journal result() && {
    journal_.steps.reserve(entries_.size());
    for (auto& [step, entry] : entries_) journal_.steps.push_back(std::move(entry));
    return std::move(journal_);
  }

 private:
  std::optional<std::int64_t> last_step() const {
    if (current_ != nullptr) return current_->number;
    return entries_.empty() ? std::nullopt : std::optional(entries_.rbegin()->first);
  }

  JournalStepEntry& entry(std::int64_t step) {
    if (current_ == nullptr || current_->number != step) {
      current_ = &entries_[step];
      *current_ = JournalStepEntry{.number = step};
    }
    return *current_;
  }

  Journal journal_;
  std::map<std::int64_t, JournalStepEntry> entries_;
  JournalStepEntry* current_ = nullptr;
};

}  // namespace

bool JournalReader::next(JournalRecord& record) {
  std::string_view line;
  while (lines_.next(line)) {
    if (!lines_.ending().ends_with('\n')) {
      torn_ = true;
      return false;
    }
    try {
      if (std::optional<JournalRecord> parsed = parse_journal_line(line)) {
        record = std::move(*parsed);
        return true;
      }
    } catch (const Error& error) {
      throw error_at(at_line(source_->name(), lines_.line_number()), error.what());
    }
  }
  return false;
}

Journal read_journal(const std::string& path) {
  JournalReader reader(path);
  return read_journal(reader);
}

Journal read_journal(JournalReader& reader) {
  JournalCollector collector;
  JournalRecord record;
  while (reader.next(record)) std::visit(collector, record);
  Journal journal = std::move(collector).result();
  journal.torn = reader.torn();
  return journal;
}

std::uint64_t denied_in(const JournalStepEntry& entry) {
  const auto is_denied = [](const JournalEvent& event) { return event.event == JournalEventKind::denied; };
  const auto listed = static_cast<std::uint64_t>(std::count_if(entry.events.begin(), entry.events.end(), is_denied));
  return std::max(listed, entry.step ? entry.step->denied : 0);
}

}  // namespace gnmr::io
