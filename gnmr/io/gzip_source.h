// SPDX-License-Identifier: Apache-2.0
// What a gzip stream holds.
//
// Goals: several members one after the other, as `cat a.gz b.gz` makes them; damage and a missing end are errors.
// Non-goals: zlib streams without a gzip header, other compressors.
#pragma once

#include <memory>
#include <string_view>

#include "gnmr/io/byte_source.h"

namespace gnmr::io {

/// The bytes with which every gzip member starts: magic number and the one method there is.
inline constexpr std::string_view kGzipMagic("\x1f\x8b\x08", 3);

/// A source of what the gzip stream `compressed` holds.
std::unique_ptr<ByteSource> make_gzip_source(std::unique_ptr<ByteSource> compressed);

}  // namespace gnmr::io
