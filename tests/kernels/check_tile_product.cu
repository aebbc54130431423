// SPDX-License-Identifier: Apache-2.0
// Products of E4M3 matrices, in every shape of tile: exactly where sums are exact, else within the tensor cores'
// rounding.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/random_run.h"
#include "gnmr/formats/reference.h"
#include "gnmr/kernels/tile_product_reference.h"
#include "gnmr/kernels/tile_product_shapes.h"
#include "kernels/check.h"

namespace gnmr::kernels::testing {
namespace {

using gnmr::testing::Random;

constexpr std::size_t kMargin = 64;      // behind the product; it stays as it was
constexpr std::uint8_t kNanCode = 0x7f;  // behind the operands; nothing of it comes in
constexpr std::uint64_t kBlock = 128;

struct Sizes {
  std::uint64_t rows, columns, depth;
};

enum class Content { exact, usual, far_scales, nan };

std::uint64_t blocks_in(std::uint64_t length) { return (length + kBlock - 1) / kBlock; }

/// Operands on the host. Where they are exact every sum is a number of float32, and of the tensor cores.
struct Case {
  Case(Random& random, Sizes wanted, CastGroups b_groups, ElementType wanted_type, Content wanted_content)
      : sizes(wanted), groups(b_groups), type(wanted_type), content(wanted_content) {
    fill_codes(random, a, sizes.rows);
    fill_codes(random, b, sizes.columns);
    const std::uint64_t blocks = blocks_in(sizes.depth);
    if (groups == CastGroups::block) stride = blocks + (random.chance(0.5) ? 3 : 0);
    fill_scales(random, a_scales, blocks * sizes.rows, 1);
    fill_scales(random, b_scales,
                groups == CastGroups::tile ? blocks * sizes.columns : blocks_in(sizes.columns) * stride, -1);
    if (content == Content::nan) {
      a[random.below(sizes.rows * sizes.depth)] = 0x7f;
      b[random.below(sizes.columns * sizes.depth)] = 0xff;
      a_scales[random.below(blocks * sizes.rows)] = std::numeric_limits<float>::quiet_NaN();
    }
    if (groups == CastGroups::block && stride == blocks) stride = 0;
  }

  std::string name() const {
    return std::to_string(sizes.rows) + " x " + std::to_string(sizes.columns) + " over " + std::to_string(sizes.depth) +
           (type == ElementType::float32 ? " float32" : " bfloat16") +
           (content == Content::usual        ? ""
            : content == Content::exact      ? " exact"
            : content == Content::far_scales ? " far scales"
                                             : " nan");
  }

  /// The task with operands wherever they are.
  TileProductTask task(const std::uint8_t* codes_a, const float* scales_a, const std::uint8_t* codes_b,
                       const float* scales_b, void* product) const {
    return {.a = codes_a,
            .a_scales = scales_a,
            .b = codes_b,
            .b_scales = scales_b,
            .b_scale_stride = stride,
            .b_groups = groups,
            .rows = sizes.rows,
            .columns = sizes.columns,
            .depth = sizes.depth,
            .product = product,
            .type = type};
  }
  TileProductTask on_host() const { return task(a.data(), a_scales.data(), b.data(), b_scales.data(), nullptr); }

  Sizes sizes;
  CastGroups groups;
  ElementType type;
  Content content;
  std::uint64_t stride = 0;
  std::vector<std::uint8_t> a, b;
  std::vector<float> a_scales, b_scales;

 private:
  void fill_codes(Random& random, std::vector<std::uint8_t>& codes, std::uint64_t rows) const {
    for (std::uint64_t i = 0; i < rows * sizes.depth; ++i) {
      if (content == Content::usual) {
        const auto code = static_cast<std::uint8_t>(random.below(0x7f) | (random.below(2) << 7));
        codes.push_back(code);
      } else {
        codes.push_back(random.pick<std::uint8_t>({0x00, 0x80, 0x38, 0xb8, 0x40, 0xc0, 0x38, 0xb8}));  // 0, 1, 2
      }
    }
    codes.insert(codes.end(), 512, kNanCode);
  }

  /// `side` is 1 or -1: where scales are far from 1, those of a and b are so in opposite directions, block by block.
  void fill_scales(Random& random, std::vector<float>& scales, std::uint64_t count, int side) const {
    for (std::uint64_t i = 0; i < count; ++i) {
      if (content == Content::usual) {
        scales.push_back(static_cast<float>(std::exp2(random.uniform(-20, 4))));
      } else {
        const int far = content == Content::far_scales ? 110 * side : 0;
        scales.push_back(std::ldexp(1.0f, static_cast<int>(random.below(5)) - 2 + far));
      }
    }
    scales.insert(scales.end(), 512, std::numeric_limits<float>::quiet_NaN());
  }
};

/// The operands on the device, and room for a product.
struct CaseOnDevice {
  explicit CaseOnDevice(const Case& one)
      : a(one.a),
        b(one.b),
        a_scales(one.a_scales),
        b_scales(one.b_scales),
        product((one.sizes.rows * one.sizes.columns + kMargin) * bytes_of(one.type)) {}

  std::vector<std::byte> multiply(const Case& one, std::size_t shape) {
    must(cudaMemset(product.data(), 0xee, (one.sizes.rows * one.sizes.columns + kMargin) * bytes_of(one.type)));
    multiply_tiles_with(shape, task(one), nullptr);
    must(cudaDeviceSynchronize());
    return product.get();
  }
  TileProductTask task(const Case& one) const {
    return one.task(a.data(), a_scales.data(), b.data(), b_scales.data(), product.data());
  }

  OnDevice<std::uint8_t> a, b;
  OnDevice<float> a_scales, b_scales;
  OnDevice<std::byte> product;
};

std::string place(std::size_t index, std::uint64_t columns) {
  return "row " + std::to_string(index / columns) + ", column " + std::to_string(index % columns);
}

/// Where a product is not what it should be, or something behind it was written.
std::string difference(const Case& one, const std::vector<std::byte>& found, const ReferenceProduct& expected) {
  const std::size_t count = one.sizes.rows * one.sizes.columns;
  std::size_t wrong = 0;
  std::string first;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = load_element(found.data(), i, one.type);
    double should_be = expected.sums[i];
    bool is_good = false;
    if (std::isnan(should_be)) {
      is_good = std::isnan(value);
    } else if (one.content == Content::usual) {
      // 14 bits for each of up to 128 terms in the tensor cores; bfloat16 has 8.
      const double rounding = one.type == ElementType::bfloat16 ? std::abs(should_be) * 0x1p-8 : 0;
      is_good = std::abs(value - should_be) <= 0x1p-8 * expected.magnitudes[i] + rounding;
    } else {
      std::byte rounded[4];
      store_element(rounded, 0, one.type, should_be);
      should_be = load_element(rounded, 0, one.type);
      is_good = value == should_be;
    }
    if (is_good) continue;
    if (wrong++ == 0) {
      first = place(i, one.sizes.columns) + " is " + std::to_string(value) + ", expected " + std::to_string(should_be);
    }
  }
  if (wrong > 0) return std::to_string(wrong) + " of " + std::to_string(count) + " wrong; " + first;
  for (std::size_t i = count * bytes_of(one.type); i < found.size(); ++i) {
    if (found[i] != std::byte{0xee}) return "written behind the end";
  }
  return "";
}

const char* group_name(CastGroups groups) { return groups == CastGroups::tile ? "tile" : "block"; }

/// Many sizes, in one shape after the other.
void check_sizes(Checks& checks, CastGroups groups) {
  constexpr Sizes kSizes[] = {{16, 16, 16},    {16, 16, 128},   {128, 128, 128}, {64, 16, 256},    {16, 208, 144},
                              {256, 128, 384}, {128, 256, 400}, {272, 240, 512}, {144, 112, 1040}, {400, 336, 272},
                              {96, 528, 640},  {528, 96, 112},  {192, 160, 2048}};
  Random random(31);
  std::vector<std::string> troubles(tile_shape_count(groups));
  for (const Sizes& sizes : kSizes) {
    for (const Content content : {Content::exact, Content::usual, Content::far_scales, Content::nan}) {
      if (checks.is_small() && random.chance(0.7)) continue;
      const ElementType type = random.pick({ElementType::bfloat16, ElementType::float32});
      const Case one(random, sizes, groups, type, content);
      const ReferenceProduct expected = reference_tile_product(one.on_host());
      CaseOnDevice on_device(one);
      for (std::size_t shape = 0; shape < troubles.size(); ++shape) {
        if (!troubles[shape].empty()) continue;
        const std::string trouble = difference(one, on_device.multiply(one, shape), expected);
        if (!trouble.empty()) troubles[shape] = one.name() + ": " + trouble;
      }
    }
  }
  for (std::size_t shape = 0; shape < troubles.size(); ++shape) {
    checks.report(std::string("products, ") + group_name(groups) + ", " + tile_shape_name(groups, shape),
                  troubles[shape]);
  }
}

/// The same in the plainest way, where exact sums fit into float32.
__global__ void multiply_plainly(TileProductTask task, const float* values, float* product) {
  const std::uint64_t index = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x;
  if (index >= task.rows * task.columns) return;
  const std::uint64_t row = index / task.columns;
  const std::uint64_t column = index % task.columns;
  const std::uint64_t blocks = (task.depth + kBlock - 1) / kBlock;
  const std::uint64_t stride = task.b_scale_stride == 0 ? blocks : task.b_scale_stride;
  float total = 0;
  for (std::uint64_t block = 0; block < blocks; ++block) {
    float sum = 0;
    for (std::uint64_t k = block * kBlock; k < min((block + 1) * kBlock, task.depth); ++k) {
      sum += values[task.a[row * task.depth + k]] * values[task.b[column * task.depth + k]];
    }
    const float b_scale = task.b_groups == CastGroups::tile ? task.b_scales[block * task.columns + column]
                                                            : task.b_scales[column / kBlock * stride + block];
    total += sum * task.a_scales[block * task.rows + row] * b_scale;
  }
  product[index] = total;
}

/// Products of many tiles: blocks take several, and the ring goes round and round.
void check_large(Checks& checks, CastGroups groups) {
  if (checks.is_small()) return;
  std::vector<float> values;
  for (std::uint32_t code = 0; code < 256; ++code) {
    values.push_back(static_cast<float>(formats::reference::decode(formats::Format::e4m3, code)));
  }
  const OnDevice<float> values_on_device(values);
  Random random(32);
  for (const Sizes& sizes : {Sizes{4112, 4224, 528}, Sizes{1040, 5136, 4096}, Sizes{5136, 4112, 112}}) {
    const Case one(random, sizes, groups, ElementType::float32, Content::exact);
    CaseOnDevice on_device(one);
    const std::size_t count = sizes.rows * sizes.columns;
    const OnDevice<float> plain(count);
    multiply_plainly<<<static_cast<unsigned>((count + 255) / 256), 256>>>(on_device.task(one), values_on_device.data(),
                                                                          plain.data());
    must(cudaGetLastError());
    const std::vector<float> expected = plain.get();
    for (std::size_t shape = 0; shape < tile_shape_count(groups); ++shape) {
      const std::vector<std::byte> found = on_device.multiply(one, shape);
      std::string trouble;
      if (std::memcmp(found.data(), expected.data(), count * sizeof(float)) != 0) {
        std::size_t wrong = 0;
        std::size_t first = count;
        for (std::size_t i = 0; i < count; ++i) {
          if (load_element(found.data(), i, one.type) == static_cast<double>(expected[i])) continue;
          ++wrong;
          first = std::min(first, i);
        }
        if (wrong > 0) trouble = std::to_string(wrong) + " wrong, the first at " + place(first, sizes.columns);
      }
      checks.report(one.name() + ", " + group_name(groups) + ", " + tile_shape_name(groups, shape), trouble);
    }
  }
}

/// Sums that are rounded, again and again: the same bits.
void check_bits(Checks& checks, CastGroups groups) {
  Random random(33);
  const Sizes sizes = checks.is_small() ? Sizes{272, 272, 512} : Sizes{2064, 2192, 2064};
  const Case one(random, sizes, groups, ElementType::float32, Content::usual);
  CaseOnDevice on_device(one);
  std::string trouble;
  for (std::size_t shape = 0; shape < tile_shape_count(groups); ++shape) {
    const std::vector<std::byte> first = on_device.multiply(one, shape);
    for (int run = 0; run < 4 && trouble.empty(); ++run) {
      if (!same_bits(first, on_device.multiply(one, shape))) trouble = tile_shape_name(groups, shape);
    }
  }
  checks.report(std::string("products have the same bits again, ") + group_name(groups), trouble);
}

/// What callers call.
void check_choice(Checks& checks) {
  Random random(34);
  std::string trouble;
  for (const CastGroups groups : {CastGroups::tile, CastGroups::block}) {
    const Case one(random, {304, 176, 400}, groups, ElementType::bfloat16, Content::exact);
    CaseOnDevice on_device(one);
    multiply_tiles(on_device.task(one), nullptr);
    must(cudaDeviceSynchronize());
    if (trouble.empty()) trouble = difference(one, on_device.product.get(), reference_tile_product(one.on_host()));
  }
  checks.report("products in the shape that is chosen", trouble);
}

}  // namespace

void check_tile_product(Checks& checks) {
  if (!tile_product_available()) {
    std::printf("skip products of tiles: compute capability 9.0 only\n");
    return;
  }
  for (const CastGroups groups : {CastGroups::tile, CastGroups::block}) {
    check_sizes(checks, groups);
    check_large(checks, groups);
    check_bits(checks, groups);
  }
  check_choice(checks);
}

}  // namespace gnmr::kernels::testing
