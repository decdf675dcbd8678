// Content hashes of many blocks at once, on a GPU. Short, because it alone needs CUDA's headers:
// content_hash.hpp is compiled without them too.
#pragma once

#include <cuda_runtime.h>

#include "buffer/pool/content_hash.hpp"

namespace penstock::buffer {

// Of `count` blocks that lie one behind the other in memory that the device reaches, 16-byte
// aligned, or of those among them that `which` names; `block_bytes` is a multiple of hashed_bytes.
// In order on the stream.
cudaError_t hash_blocks(signature_kind kind, const std::byte* blocks, std::uint64_t count,
                        std::uint64_t block_bytes, content_hash* out, cudaStream_t stream,
                        const std::uint32_t* which = nullptr);

// A kernel's code is loaded at its first launch, which would wait for kernels that run: so before.
cudaError_t load_hash_kernels();

}  // namespace penstock::buffer
