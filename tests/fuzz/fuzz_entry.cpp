// The entry that libFuzzer calls.
#include <cstdio>
#include <cstdlib>

#include "fuzz/ring_fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string wrong = penstock::fuzz::fuzz_ring(penstock::fuzz::fuzz_root(), data, size);
    if (wrong.empty()) return 0;
    std::fprintf(stderr, "ring fuzzer: %s\n", wrong.c_str());
    std::abort();
}
