// SPDX-License-Identifier: Apache-2.0
#include "gnmr/models/safetensors.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <optional>
#include <set>

#include "gnmr/core/error.h"
#include "gnmr/io/checksum.h"
#include "gnmr/io/file_descriptor.h"
#include "gnmr/io/json_text.h"
#include "gnmr/io/text_error.h"
#include "gnmr/io/whole_file.h"
#include "gnmr/models/safetensors_header.h"

static_assert(std::endian::native == std::endian::little, "the data of a safetensors file are little-endian");

namespace gnmr::models {
namespace {

// As StoredType orders them.
constexpr std::array<at::ScalarType, kStoredTypeCount> kScalarTypes{
    at::kBool,     at::kByte, at::kFloat8_e5m2, at::kFloat8_e4m3fn, at::kHalf,
    at::kBFloat16, at::kInt,  at::kFloat,       at::kDouble,        at::kLong};

std::optional<StoredType> stored_type(at::ScalarType type) {
  const auto found = std::find(kScalarTypes.begin(), kScalarTypes.end(), type);
  if (found == kScalarTypes.end()) return std::nullopt;
  return static_cast<StoredType>(found - kScalarTypes.begin());
}

// The pages of a file, private: what is written to them is never written back.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const io::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.is_open()) io::throw_errno(path, "cannot open it");
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) io::throw_errno(path, "cannot look at it");
    if (!S_ISREG(status.st_mode)) throw io::error_at(path, "not a regular file");
    size_ = static_cast<std::size_t>(status.st_size);
    if (size_ == 0) return;
    void* const address = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
    if (address == MAP_FAILED) io::throw_errno(path, "cannot map it");
    data_ = static_cast<char*>(address);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }

  char* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
};

at::Tensor mapped_tensor(const std::shared_ptr<MappedFile>& file, std::size_t data_begin, const StoredTensor& stored) {
  const at::ScalarType type = kScalarTypes[static_cast<std::size_t>(stored.type)];
  if (stored.begin == stored.end) return at::empty(stored.shape, at::TensorOptions().dtype(type));
  char* const first = file->data() + data_begin + stored.begin;
  const auto bytes = static_cast<std::int64_t>(stored.end - stored.begin);
  const at::Tensor raw = at::from_blob(
      first, {bytes}, [file](void*) {}, at::TensorOptions().dtype(at::kByte));
  const bool aligned = reinterpret_cast<std::uintptr_t>(first) % element_bytes(stored.type) == 0;
  if (aligned) {
    return at::from_blob(
        first, stored.shape, [file](void*) {}, at::TensorOptions().dtype(type));
  }
  return raw.clone().view(type).view(stored.shape);
}

// A bool of another value than 0 and 1 is no bool to a compiler.
void check_booleans(const char* first, const StoredTensor& stored, const std::string& path) {
  const bool plain = std::all_of(first + stored.begin, first + stored.end,
                                 [](char byte) { return static_cast<unsigned char>(byte) <= 1; });
  if (!plain) throw io::error_at(path, "tensor " + io::in_quotes(stored.name) + ": a BOOL is neither 0 nor 1");
}

void check_tensor(std::string_view data, const StoredTensor& stored, const io::FileSums& expected,
                  const std::string& path) {
  const std::string place = path + ": tensor " + io::in_quotes(stored.name);
  const auto sum = expected.tensors.find(stored.name);
  if (sum == expected.tensors.end()) throw io::error_at(place, std::string(io::kChecksumFile) + " does not list it");
  io::check_sum(io::crc32c(data.substr(stored.begin, stored.end - stored.begin)), sum->second, place);
}

struct PlannedTensor {
  const at::Tensor* tensor;
  StoredTensor stored;
};

// In the reference library's order: large elements first, so that all are aligned, then by name.
std::vector<PlannedTensor> plan(const std::string& path, const NamedTensors& tensors) {
  std::vector<PlannedTensor> planned;
  std::set<std::string_view> names;
  for (const auto& [name, tensor] : tensors) {
    const auto fail = [&, &the_name = name](const std::string& what) {
      throw io::error_at(path, "tensor " + io::in_quotes(the_name) + ": " + what);
    };
    if (name == "__metadata__" || !io::is_utf8(name)) fail("no tensor can have this name");
    if (!names.insert(name).second) fail("is there twice");
    if (!tensor.defined()) fail("is not defined");
    const auto type = stored_type(tensor.scalar_type());
    if (!type) fail(c10::str("cannot store ", tensor.scalar_type()));
    planned.push_back({&tensor, {.name = name, .type = *type, .shape = tensor.sizes().vec()}});
  }
  std::sort(planned.begin(), planned.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
    return a.stored.type != b.stored.type ? a.stored.type > b.stored.type : a.stored.name < b.stored.name;
  });
  std::uint64_t at = 0;
  for (PlannedTensor& one : planned) {
    one.stored.begin = at;
    at += static_cast<std::uint64_t>(stored_bytes(*one.tensor));
    one.stored.end = at;
  }
  return planned;
}

}  // namespace

const at::Tensor* TensorFile::find(std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const auto& one) { return one.first == name; });
  return found == tensors.end() ? nullptr : &found->second;
}

const at::Tensor& TensorFile::at(std::string_view name) const {
  const at::Tensor* const found = find(name);
  if (found == nullptr) throw Error("[safetensors] there is no tensor " + io::in_quotes(name));
  return *found;
}

std::int64_t stored_bytes(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

TensorFile read_safetensors(const std::string& path, const io::FileSums* expected) {
  const auto file = std::make_shared<MappedFile>(path);
  const std::string_view bytes(file->data(), file->size());
  if (expected != nullptr) io::check_size(bytes.size(), *expected, path);
  const auto length = static_cast<std::size_t>(header_length(bytes, bytes.size(), path));
  const std::size_t data_begin = kHeaderLengthBytes + length;
  if (expected != nullptr) io::check_sum(io::crc32c(bytes.substr(0, data_begin)), expected->crc32c, path + ": header");
  const SafetensorsHeader header =
      parse_safetensors_header(bytes.substr(kHeaderLengthBytes, length), bytes.size() - data_begin, path);
  TensorFile result;
  result.metadata = header.metadata;
  for (const StoredTensor& stored : header.tensors) {
    if (expected != nullptr) check_tensor(bytes.substr(data_begin), stored, *expected, path);
    if (stored.type == StoredType::boolean) check_booleans(bytes.data() + data_begin, stored, path);
    result.tensors.emplace_back(stored.name, mapped_tensor(file, data_begin, stored));
  }
  return result;
}

io::FileSums write_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  const std::vector<PlannedTensor> planned = plan(path, tensors);
  SafetensorsHeader header;
  header.metadata = metadata;
  for (const PlannedTensor& one : planned) header.tensors.push_back(one.stored);
  const std::string first_bytes = safetensors_header_bytes(header);
  if (first_bytes.size() > kLargestHeader) throw io::error_at(path, "too many tensors for one header");
  io::StreamedFile file(path);
  file.write(first_bytes);
  io::FileSums sums{.bytes = first_bytes.size(), .crc32c = file.take_crc32c()};
  for (const PlannedTensor& one : planned) {
    const at::Tensor plain = one.tensor->detach().to(at::kCPU).contiguous();
    file.write({static_cast<const char*>(plain.const_data_ptr()), static_cast<std::size_t>(stored_bytes(plain))});
    sums.bytes += one.stored.end - one.stored.begin;
    sums.tensors.emplace(one.stored.name, file.take_crc32c());
  }
  file.commit();
  return sums;
}

}  // namespace gnmr::models
