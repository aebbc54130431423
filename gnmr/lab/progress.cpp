// SPDX-License-Identifier: Apache-2.0
#include "gnmr/lab/progress.h"

#include <algorithm>
#include <array>
#include <fstream>

#include "gnmr/core/error.h"
#include "gnmr/io/json.h"

namespace gnmr::lab {

bool ProgressFollower::update() {
  std::ifstream file(path_, std::ios::binary);
  if (!file.seekg(static_cast<std::streamoff>(read_))) return false;
  bool any = false;
  std::array<char, 1 << 16> buffer;
  while (file.read(buffer.data(), buffer.size()), file.gcount() > 0) {
    const auto got = static_cast<std::size_t>(file.gcount());
    any = true;
    read_ += got;
    rest_.append(buffer.data(), got);
  }
  std::size_t begin = 0;
  for (std::size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', begin)) {
    take(rest_.substr(begin, end - begin));
    begin = end + 1;
  }
  rest_.erase(0, begin);
  return any;
}

void ProgressFollower::forget_from(std::int64_t step) {
  while (!points_.empty() && points_.back().step >= step) points_.pop_back();
}

void ProgressFollower::take(const std::string& line) {
  try {
    const io::Json document = io::parse_json(line);
    const io::JsonObject object(document);
    const std::string kind = object.text("kind");
    if (kind != "train" && kind != "resume") return;
    const std::int64_t step = object.whole("step");
    forget_from(step);
    if (kind == "resume") return;
    const std::int64_t batch = object.whole_if("batch").value_or(step);
    points_.push_back({.step = step,
                       .newest_batch = points_.empty() ? batch : std::max(batch, points_.back().newest_batch),
                       .loss = object.number("loss"),
                       .recovered = object.whole("recovered")});
  } catch (const Error&) {
    // A picture of a run must not stop it: whoever measures the run at its end reports it.
  }
}

}  // namespace gnmr::lab
