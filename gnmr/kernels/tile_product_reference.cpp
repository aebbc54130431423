// SPDX-License-Identifier: Apache-2.0
#include "gnmr/kernels/tile_product_reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "gnmr/core/error.h"
#include "gnmr/formats/reference.h"

namespace gnmr::kernels {
namespace {

constexpr std::uint64_t kBlock = 128;

std::uint64_t blocks_in(std::uint64_t length) { return (length + kBlock - 1) / kBlock; }

/// The values of all E4M3 numbers.
std::array<double, 256> values_of_codes() {
  std::array<double, 256> values;
  for (std::uint32_t code = 0; code < 256; ++code) {
    values[code] = formats::reference::decode(formats::Format::e4m3, code);
  }
  return values;
}

double b_scale(const TileProductTask& task, std::uint64_t column, std::uint64_t block) {
  if (task.b_groups == CastGroups::tile) return static_cast<double>(task.b_scales[block * task.columns + column]);
  const std::uint64_t stride = task.b_scale_stride == 0 ? blocks_in(task.depth) : task.b_scale_stride;
  return static_cast<double>(task.b_scales[column / kBlock * stride + block]);
}

void check_pointer(const void* pointer, const char* name) {
  if (pointer == nullptr) throw Error(std::string("[tile_product] expected ") + name + ", got null");
  if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) {
    throw Error(std::string("[tile_product] expected ") + name + " at a multiple of 16 bytes");
  }
}

}  // namespace

void check_tile_product(const TileProductTask& task) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 24;
  const std::string sizes =
      std::to_string(task.rows) + " x " + std::to_string(task.columns) + " over " + std::to_string(task.depth);
  if (task.type != ElementType::float32 && task.type != ElementType::bfloat16) {
    throw Error("[tile_product] expected a float32 or bfloat16 result");
  }
  if (task.b_groups != CastGroups::tile && task.b_groups != CastGroups::block) {
    throw Error("[tile_product] expected b's scales by tile or by block");
  }
  if (task.rows % 16 != 0 || task.columns % 16 != 0 || task.depth % 16 != 0) {
    throw Error("[tile_product] expected multiples of 16, got " + sizes);
  }
  if (task.rows >= kMost || task.columns >= kMost || task.depth >= kMost) {
    throw Error("[tile_product] expected sizes less than 2^24, got " + sizes);
  }
  if (task.depth == 0) throw Error("[tile_product] expected something to sum over, got " + sizes);
  if (task.b_groups == CastGroups::block && task.b_scale_stride != 0 &&
      (task.b_scale_stride < blocks_in(task.depth) || task.b_scale_stride >= kMost)) {
    throw Error("[tile_product] expected a stride of at least " + std::to_string(blocks_in(task.depth)) +
                " scales, got " + std::to_string(task.b_scale_stride));
  }
  if (task.rows == 0 || task.columns == 0) return;
  check_pointer(task.a, "a");
  check_pointer(task.a_scales, "a's scales");
  check_pointer(task.b, "b");
  check_pointer(task.b_scales, "b's scales");
  check_pointer(task.product, "a place for the result");
}

ReferenceProduct reference_tile_product(const TileProductTask& task) {
  const std::array<double, 256> values = values_of_codes();
  ReferenceProduct product{std::vector<double>(task.rows * task.columns),
                           std::vector<double>(task.rows * task.columns)};
  for (std::uint64_t row = 0; row < task.rows; ++row) {
    for (std::uint64_t column = 0; column < task.columns; ++column) {
      double sum = 0;
      double magnitude = 0;
      for (std::uint64_t block = 0; block < blocks_in(task.depth); ++block) {
        double in_block = 0;
        double size = 0;
        const std::uint64_t end = std::min(task.depth, (block + 1) * kBlock);
        for (std::uint64_t k = block * kBlock; k < end; ++k) {
          const double term = values[task.a[row * task.depth + k]] * values[task.b[column * task.depth + k]];
          in_block += term;
          size += std::abs(term);
        }
        const double scale = static_cast<double>(task.a_scales[block * task.rows + row]) * b_scale(task, column, block);
        sum += scale * in_block;
        magnitude += std::abs(scale) * size;
      }
      product.sums[row * task.columns + column] = sum;
      product.magnitudes[row * task.columns + column] = magnitude;
    }
  }
  return product;
}

}  // namespace gnmr::kernels
