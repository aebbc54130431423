// SPDX-License-Identifier: Apache-2.0
// Norms and clipping in place against the reference, over steps whose gradients move and are missing now and then.
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "core/random_run.h"
#include "gnmr/core/error.h"
#include "gnmr/kernels/clipped_norms.h"
#include "gnmr/kernels/norms_reference.h"
#include "kernels/check.h"

namespace gnmr::kernels::testing {
namespace {

using gnmr::testing::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// One gradient on both sides, a few elements off the beginning of its memory.
struct Gradient {
  ElementType type;
  std::uint64_t count;
  std::size_t offset;
  std::uint32_t unit;
  std::vector<std::byte> host = {};
  std::unique_ptr<OnDevice<std::byte>> device = nullptr;

  std::size_t bytes() const { return (count + offset + 8) * bytes_of(type); }
  const std::byte* on_host() const { return host.data() + offset * bytes_of(type); }
  std::byte* on_device() const { return device->data() + offset * bytes_of(type); }
};

std::uint32_t random_bits(Random& random, ElementType type, double scale) {
  const auto value = static_cast<float>(random.normal() * scale);
  if (type == ElementType::bfloat16) return bfloat16_of(value);
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (type == ElementType::float32) return bits;
  return static_cast<std::uint32_t>(random.below(2) << 15 | (random.below(20) << 10) | random.below(1024));
}

std::vector<Gradient> make_gradients() {
  std::vector<Gradient> gradients;
  std::uint32_t unit = 0;
  for (const ElementType type : {ElementType::float32, ElementType::bfloat16, ElementType::float16}) {
    for (const std::uint64_t count : {0, 1, 7, 8, 9, 1000, 16385, 140001}) {
      for (const std::size_t offset : {0, 1, 5}) {
        gradients.push_back({.type = type, .count = count, .offset = offset, .unit = unit++ % 11});
      }
    }
  }
  return gradients;
}

void draw(Random& random, std::vector<Gradient>& gradients, double scale) {
  for (Gradient& gradient : gradients) {
    gradient.host.assign(gradient.bytes(), std::byte{0x11});
    for (std::uint64_t i = 0; i < gradient.count; ++i) {
      const std::uint32_t bits = random_bits(random, gradient.type, scale);
      std::memcpy(gradient.host.data() + (gradient.offset + i) * bytes_of(gradient.type), &bits,
                  bytes_of(gradient.type));
    }
    auto before = std::move(gradient.device);  // so that the new one lies elsewhere
    gradient.device = std::make_unique<OnDevice<std::byte>>(gradient.host);
  }
}

std::vector<Slice> slices_of(const std::vector<Gradient>& gradients, bool on_device, std::size_t missing) {
  std::vector<Slice> slices;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Gradient& gradient = gradients[i];
    const void* const data = on_device ? gradient.on_device() : gradient.on_host();
    slices.push_back({.data = i == missing ? nullptr : data,
                      .count = i == missing && !on_device ? 0 : gradient.count,
                      .type = gradient.type,
                      .unit = gradient.unit});
  }
  return slices;
}

/// Where the scaled gradients are not those of the host times a factor, rounded once.
std::string scaling_trouble(const std::vector<Gradient>& gradients, float factor, std::size_t missing) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Gradient& gradient = gradients[i];
    const std::vector<std::byte> found = gradient.device->get();
    const std::size_t size = bytes_of(gradient.type);
    const std::size_t first = gradient.offset * size;
    const std::size_t last = first + gradient.count * size;
    if (std::memcmp(found.data(), gradient.host.data(), first) != 0 ||
        std::memcmp(found.data() + last, gradient.host.data() + last, found.size() - last) != 0) {
      return "around gradient " + std::to_string(i);
    }
    for (std::uint64_t at = 0; at < gradient.count; ++at) {
      const auto before = static_cast<float>(load_element(gradient.on_host(), at, gradient.type));
      const double value = load_element(found.data() + first, at, gradient.type);
      const float expected = i == missing ? before : before * factor;
      const double ulp = gradient.type == ElementType::float32    ? 0
                         : gradient.type == ElementType::bfloat16 ? 0x1p-8
                                                                  : 0x1p-11;
      const bool good =
          std::isnan(expected) ? std::isnan(value) : std::abs(value - expected) <= ulp * std::abs(expected) + 0x1p-25;
      if (!good) return "element " + std::to_string(at) + " of gradient " + std::to_string(i);
    }
  }
  return "";
}

void check_steps(Checks& checks) {
  Random random(41);
  std::vector<Gradient> gradients = make_gradients();
  ClippedNorms norms(11);
  std::string trouble;
  NormsTicket before;
  const int steps = checks.is_small() ? 4 : 10;
  for (int step = 0; step < steps && trouble.empty(); ++step) {
    draw(random, gradients, step % 5 == 3 ? std::nan("") : 1e-2);
    const std::size_t missing = step % 2 == 0 ? gradients.size() : 23;
    const double max_norm = step % 3 == 0 ? 0.25 : step % 3 == 1 ? 1e9 : kInfinity;
    const std::vector<double> expected = reference_sums(slices_of(gradients, false, missing), 11);
    norms.sum(slices_of(gradients, true, missing), nullptr);
    const NormsTicket ticket = norms.finish(max_norm, nullptr);
    const StepNorms found = norms.read(ticket);
    if (!norms.is_there(ticket)) trouble = "numbers that were read are not there";
    const Gate gate = reference_gate(expected, max_norm);
    for (std::size_t unit = 0; unit < expected.size(); ++unit) {
      const bool odd = std::isnan(expected[unit]) && std::isnan(found.sums[unit]);
      if (!odd && !(std::abs(found.sums[unit] - expected[unit]) <= 5e-7 * expected[unit])) trouble = "sums";
    }
    if (std::abs(found.gate.coefficient - gate.coefficient) > 1e-6f) trouble = "coefficient";
    const float factor = !std::isfinite(max_norm) ? 1.0f : std::isnan(gate.total_norm) ? NAN : found.gate.coefficient;
    if (trouble.empty()) trouble = scaling_trouble(gradients, factor, missing);
    if (trouble.empty() && !std::isfinite(max_norm)) {
      norms.scale(0.125, nullptr);
      must(cudaDeviceSynchronize());
      trouble = scaling_trouble(gradients, 0.125f, missing);
    }
    if (before.number > 1) {
      try {
        norms.read({before.number - 1});
        trouble = "the numbers of a step long ago were read";
      } catch (const Error&) {
      }
    }
    before = ticket;
    if (!trouble.empty()) trouble += " in step " + std::to_string(step);
  }
  checks.report("norms and clipping in place, " + std::to_string(steps) + " steps", trouble);
}

}  // namespace

void check_clipped_norms(Checks& checks) { check_steps(checks); }

}  // namespace gnmr::kernels::testing
