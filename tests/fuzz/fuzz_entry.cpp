// The entry that libFuzzer calls; without libFuzzer a program that calls it, with inputs from seeds
// or from files named on the command line.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz/ring_fuzz.hpp"
#include "penstock/base/hash.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string wrong = penstock::fuzz::fuzz_ring(penstock::fuzz::fuzz_root(), data, size);
    if (wrong.empty()) return 0;
    std::fprintf(stderr, "ring fuzzer: %s\n", wrong.c_str());
    std::abort();
}

#if !defined(PENSTOCK_LIBFUZZER)
int main(int count, char** words) {
    if (count == 3 && std::string(words[1]) == "--seeds") {
        const std::uint64_t seeds = std::strtoull(words[2], nullptr, 10);
        for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
            std::vector<std::uint8_t> bytes(20 + penstock::mix64(seed) % 3000);
            for (std::size_t i = 0; i < bytes.size(); ++i)
                bytes[i] = static_cast<std::uint8_t>(penstock::mix64(seed * 1000003 + i));
            const std::string wrong =
                penstock::fuzz::fuzz_ring(penstock::fuzz::fuzz_root(), bytes.data(), bytes.size());
            if (wrong.empty()) continue;
            std::fprintf(stderr, "ring fuzzer: seed %llu: %s\n",
                         static_cast<unsigned long long>(seed), wrong.c_str());
            return 1;
        }
        std::printf("%llu seeds passed\n", static_cast<unsigned long long>(seeds));
        return 0;
    }
    if (count < 2) {
        std::fprintf(stderr, "usage: %s --seeds N | FILE ...\n", words[0]);
        return 2;
    }
    for (int i = 1; i < count; ++i) {
        std::ifstream in(words[i], std::ios::binary);
        const std::vector<std::uint8_t> bytes((std::istreambuf_iterator<char>(in)),
                                              std::istreambuf_iterator<char>());
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
    return 0;
}
#endif
