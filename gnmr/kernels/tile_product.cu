// SPDX-License-Identifier: Apache-2.0
// Compiled for sm_90a alone: the rest of the layer is plain sm_90.
#include <cuda.h>

#include <algorithm>
#include <array>
#include <span>

#include "gnmr/kernels/cuda_memory.h"
#include "gnmr/kernels/device.h"
#include "gnmr/kernels/tile_product.h"
#include "gnmr/kernels/tile_product_kernel.cuh"
#include "gnmr/kernels/tile_product_shapes.h"

namespace gnmr::kernels {
namespace {

/// One of the current device's numbers; throws nothing where there is no device.
int attribute(cudaDeviceAttr which) {
  int device = 0;
  int value = 0;
  if (cudaGetDevice(&device) == cudaSuccess && cudaDeviceGetAttribute(&value, which, device) == cudaSuccess) {
    return value;
  }
  cudaGetLastError();  // a question leaves no error behind
  return 0;
}

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

/// The driver's function, without linking the driver.
EncodeTiled find_encode_tiled() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
#else
  const cudaError_t status = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
  check_cuda(status, "cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    throw Error("[cuda] cuTensorMapEncodeTiled: the driver does not have it; a driver for CUDA 12 or newer does");
  }
  return reinterpret_cast<EncodeTiled>(function);
}

/// A matrix without gaps, read in boxes.
struct BoxedMatrix {
  const void* data;
  CUtensorMapDataType type;
  std::uint64_t element_bytes;
  std::uint64_t inner;
  std::uint64_t outer;
  std::uint32_t inner_box;
  std::uint32_t outer_box;
  CUtensorMapSwizzle swizzle;
};

CUtensorMap map_of(const BoxedMatrix& matrix) {
  static const EncodeTiled encode = find_encode_tiled();
  CUtensorMap map;
  const cuuint64_t sizes[2] = {matrix.inner, matrix.outer};
  const cuuint64_t strides[1] = {matrix.inner * matrix.element_bytes};
  const cuuint32_t box[2] = {matrix.inner_box, matrix.outer_box};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult status = encode(&map, matrix.type, 2, const_cast<void*>(matrix.data), sizes, strides, box, steps,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, matrix.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw Error("[cuda] cuTensorMapEncodeTiled: error " + std::to_string(static_cast<int>(status)) + " for " +
                std::to_string(matrix.inner) + " x " + std::to_string(matrix.outer) + " in boxes of " +
                std::to_string(matrix.inner_box) + " x " + std::to_string(matrix.outer_box));
  }
  return map;
}

CUtensorMap map_of_codes(const std::uint8_t* codes, std::uint64_t rows, std::uint64_t depth, std::uint32_t box_rows) {
  return map_of(
      {codes, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, depth, rows, kProductBlock, box_rows, CU_TENSOR_MAP_SWIZZLE_128B});
}

CUtensorMap map_of_scales(const float* scales, std::uint64_t rows, std::uint64_t blocks, std::uint32_t box_rows) {
  return map_of(
      {scales, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, sizeof(float), rows, blocks, box_rows, 1, CU_TENSOR_MAP_SWIZZLE_NONE});
}

unsigned pieces_in(std::uint64_t length, unsigned piece) { return static_cast<unsigned>((length + piece - 1) / piece); }

template <class Shape>
TileProductJob job_of(const TileProductTask& task) {
  constexpr unsigned kRowsOfABand = 2048;
  const unsigned blocks = pieces_in(task.depth, kProductBlock);
  const bool by_blocks = task.b_groups == CastGroups::block;
  TileProductJob job{};
  job.a = map_of_codes(task.a, task.rows, task.depth, Shape::kRows);
  job.b = map_of_codes(task.b, task.columns, task.depth, Shape::kColumns);
  job.a_scales = map_of_scales(task.a_scales, task.rows, blocks, Shape::kRows);
  if (by_blocks) {
    job.block_scales = task.b_scales;
    job.block_scale_stride = task.b_scale_stride == 0 ? blocks : static_cast<unsigned>(task.b_scale_stride);
  } else {
    job.b_scales = map_of_scales(task.b_scales, task.columns, blocks, Shape::kColumns);
  }
  job.product = task.product;
  job.is_float32 = task.type == ElementType::float32;
  job.rows = static_cast<unsigned>(task.rows);
  job.columns = static_cast<unsigned>(task.columns);
  job.blocks = blocks;
  job.tiles_down = pieces_in(task.rows, Shape::kRows);
  job.tiles_across = pieces_in(task.columns, Shape::kColumns);
  job.band = std::max(1u, kRowsOfABand / Shape::kRows);
  return job;
}

/// How many tiles are worked on at once.
unsigned tiles_at_once() { return std::max(1, attribute(cudaDevAttrMultiProcessorCount)); }

template <class Shape, bool kBlockScales>
void launch(const TileProductTask& task, cudaStream_t stream) {
  const auto kernel = &multiply_tiles_kernel<Shape, kBlockScales>;
  const TileProductJob job = job_of<Shape>(task);
  const unsigned blocks = std::min(job.tiles_down * job.tiles_across, tiles_at_once());
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes),
             "cudaFuncSetAttribute");
  kernel<<<blocks, Shape::kThreads, Shape::kSharedBytes, stream>>>(job);
  check_cuda(cudaGetLastError(), "multiply_tiles");
}

/// A shape as it is chosen and launched.
struct Choice {
  unsigned rows;
  unsigned columns;
  unsigned buffers;
  unsigned stages;
  unsigned consumers;
  double cost;  // of an element of a tile, to be multiplied with what all rounds cover
  void (*launch)(const TileProductTask&, cudaStream_t);
};

template <class Shape, bool kBlockScales>
constexpr Choice choice_of(double cost) {
  return {Shape::kRows,
          Shape::kColumns,
          Shape::kBuffers,
          Shape::kStages,
          Shape::kConsumers,
          cost,
          &launch<Shape, kBlockScales>};
}

// The costs are nanoseconds over 8192 of K on an H200, the means of the GEMMs in tile_product_kernel.cuh: a run
// alone, divided by its rounds and by a tile's elements.
constexpr std::array kTileChoices{
    choice_of<TileShape<3, 1, 5>, false>(2.07),  // 2.10, 2.00, 2.11
    choice_of<TileShape<2, 1, 6>, false>(2.18),  // 2.21, 2.09, 2.23
};
constexpr std::array kBlockChoices{
    choice_of<TileShape<2, 2, 6>, true>(1.89),  // 1.91, 1.88
};

std::span<const Choice> choices(CastGroups b_groups) {
  if (b_groups == CastGroups::block) return kBlockChoices;
  return kTileChoices;
}

}  // namespace

bool tile_product_available() {
  return available() && attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

std::size_t tile_shape_count(CastGroups b_groups) { return choices(b_groups).size(); }

std::string tile_shape_name(CastGroups b_groups, std::size_t shape) {
  const Choice& choice = choices(b_groups)[shape];
  return std::to_string(choice.rows) + " x " + std::to_string(choice.columns) + ", " +
         std::to_string(choice.consumers) + " consumers, " + std::to_string(choice.buffers) +
         (choice.buffers == 1 ? " set of sums, " : " sets of sums, ") + std::to_string(choice.stages) + " stages";
}

std::size_t best_tile_shape(const TileProductTask& task) {
  const std::span<const Choice> all = choices(task.b_groups);
  std::size_t best = 0;
  double least = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Choice& choice = all[i];
    const unsigned tiles = pieces_in(task.rows, choice.rows) * pieces_in(task.columns, choice.columns);
    const unsigned rounds = pieces_in(tiles, tiles_at_once());
    const double cost = choice.cost * rounds * choice.rows * choice.columns;
    if (i > 0 && cost >= least) continue;
    best = i;
    least = cost;
  }
  return best;
}

void multiply_tiles_with(std::size_t shape, const TileProductTask& task, void* stream) {
  check_tile_product(task);
  if (!tile_product_available()) throw Error("[tile_product] expected a GPU of compute capability 9.0 (H100, H200)");
  if (shape >= choices(task.b_groups).size()) throw Error("[tile_product] no shape " + std::to_string(shape));
  if (task.rows == 0 || task.columns == 0) return;
  choices(task.b_groups)[shape].launch(task, stream_of(stream));
}

void multiply_tiles(const TileProductTask& task, void* stream) {
  check_tile_product(task);
  multiply_tiles_with(best_tile_shape(task), task, stream);
}

}  // namespace gnmr::kernels
