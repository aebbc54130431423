// SPDX-License-Identifier: Apache-2.0
#include "gnmr/report/chronic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gnmr/core/error_levels.h"
#include "gnmr/io/text_error.h"
#include "gnmr/report/number_format.h"

namespace gnmr::report {
namespace {

constexpr std::size_t kMostNamed = 8;

Options with_thresholds(Options options) {
  if (options.coarse_error > 0) return options;
  const Options defaults;
  options.coarse_error = defaults.coarse_error;
  options.coarse_factor = defaults.coarse_factor;
  return options;
}

class ChronicSearch {
 public:
  ChronicSearch(const io::JournalHeader& header, std::uint32_t sites)
      : units_(header.units),
        places_(io::site_names(header.sites, sites)),
        sites_(sites),
        levels_(units_, sites, with_thresholds(header.options)),
        tallies_(units_.size()) {}

  void take(const io::SignalsRow& row) {
    errors_.assign(row.values.begin(), row.values.end());
    levels_.learn(errors_, ++decision_);
    if (decision_ % kReviewInterval == 0) review();
  }

  ChronicUnits finish() {
    if (decision_ % kReviewInterval != 0) review();
    ChronicUnits found{.reviews = reviews_};
    for (UnitIndex unit = 0; unit < tallies_.size(); ++unit) {
      const Tally& tally = tallies_[unit];
      if (2 * tally.coarse <= tally.known) continue;
      found.units.push_back({.unit = unit,
                             .name = units_[unit].name,
                             .place = places_[tally.site],
                             .error = tally.error,
                             .above = tally.above,
                             .share = static_cast<double>(tally.coarse) / static_cast<double>(tally.known)});
    }
    std::stable_sort(found.units.begin(), found.units.end(),
                     [](const ChronicUnit& a, const ChronicUnit& b) { return a.above > b.above; });
    return found;
  }

 private:
  struct Tally {
    std::uint64_t known = 0;   // reviews
    std::uint64_t coarse = 0;  // reviews
    std::uint32_t site = 0;    // the rest: of the coarse one with the largest `above`
    double error = 0;
    double above = 0;
  };

  void review() {
    const StandingClaims claims = levels_.find_claims(decision_, standing_, {});
    standing_.clear();
    bool knows_any = false;
    for (UnitIndex unit = 0; unit < tallies_.size(); ++unit) {
      Tally& tally = tallies_[unit];
      const bool is_coarse = claims.of_units[unit].kind == RiskKind::coarse;
      if (is_coarse) {
        standing_.push_back(unit);
        ++tally.coarse;
      }
      bool is_known = false;
      for (std::uint32_t site = 0; site < sites_; ++site) {
        const double usual = levels_.usual_error(unit, site, decision_);
        const double median = levels_.median(site);
        if (std::isnan(usual) || std::isnan(median)) continue;
        is_known = true;
        if (!is_coarse || usual / median <= tally.above) continue;
        tally.site = site;
        tally.error = usual;
        tally.above = usual / median;
      }
      tally.known += is_known ? 1U : 0U;
      knows_any = knows_any || is_known;
    }
    reviews_ += knows_any ? 1U : 0U;
  }

  const std::vector<Unit>& units_;
  std::vector<std::string> places_;  // names of the sites
  std::uint32_t sites_;
  ErrorLevels levels_;
  std::vector<Tally> tallies_;
  std::vector<UnitIndex> standing_;  // coarse in the last review
  std::vector<double> errors_;       // reused
  std::uint64_t decision_ = 0;
  std::uint64_t reviews_ = 0;
};

}  // namespace

ChronicUnits find_chronic_units(const std::string& path, const io::JournalHeader& header) {
  return find_chronic_units(path, header, survey_rows(path, MapKind::errors), [](const io::SignalsRow&) {});
}

ChronicUnits find_chronic_units(const std::string& path, const io::JournalHeader& header, const RowSurvey& survey,
                                const std::function<void(const io::SignalsRow&)>& also) {
  io::SignalsReader reader(path);
  if (reader.unit_count() != header.units.size()) {
    throw io::error_at(path,
                       fmt::format("[signals] expected {} units, it has {}", header.units.size(), reader.unit_count()));
  }
  ChronicSearch search(header, reader.sites());
  for_rows_that_count(reader, survey, [&](const io::SignalsRow& row) {
    search.take(row);
    also(row);
  });
  return search.finish();
}

std::string chronic_text(const ChronicUnits& chronic) {
  if (chronic.reviews == 0) return "not known: too few errors were measured";
  if (chronic.units.empty()) return "none";
  std::string text;
  for (std::size_t i = 0; i < std::min(chronic.units.size(), kMostNamed); ++i) {
    const ChronicUnit& unit = chronic.units[i];
    text += fmt::format("{}{} ({} {} x median)", i > 0 ? ", " : "", unit.name, unit.place, number_text(unit.above, 2));
  }
  if (chronic.units.size() > kMostNamed) text += fmt::format(" and {} more", chronic.units.size() - kMostNamed);
  return text;
}

}  // namespace gnmr::report
