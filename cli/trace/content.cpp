#include <cstring>

#include "penstock/base/hash.hpp"
#include "trace.hpp"

namespace penstock::trace {

namespace {

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ull;

// Stretch number `page / distinct` has every content once, in order, from a place that seed, part
// and stretch decide.
std::uint64_t content_in(std::uint64_t distinct, std::uint64_t seed, std::uint64_t part,
                         std::uint64_t page) {
    const std::uint64_t stretch = page / distinct,
                        from = mix64(mix64(mix64(seed + golden) + part) + stretch) % distinct;
    const std::uint64_t place = page % distinct;
    return place < distinct - from ? place + from : place - (distinct - from);
}

}  // namespace

std::uint64_t made_content(const made_contents& c, std::uint32_t file, std::uint64_t page) {
    if (c.common_pages == 0 && c.own_distinct == 0)
        return content_in(c.distinct, c.seed, file + std::uint64_t{1}, page);
    if (page < c.common_pages) return content_in(c.common_distinct, c.seed, 0, page);
    return c.common_distinct + file * c.own_distinct +
           content_in(c.own_distinct, c.seed, file + std::uint64_t{1}, page - c.common_pages);
}

// mix64 is one to one: the first word tells contents apart, and within one content the second word
// tells places apart.
void fill_page(std::uint64_t content, std::byte* to, std::uint32_t page_bytes) {
    constexpr std::uint32_t words = 8, chunk_bytes = 64;
    const std::uint64_t first = mix64(content + golden);
    for (std::uint32_t at = 0; at < page_bytes; at += chunk_bytes) {
        std::uint64_t chunk[words] = {first, mix64(first + at + golden)};
        for (std::uint32_t i = 2; i < words; ++i) chunk[i] = mix64(chunk[1] + i * golden);
        std::memcpy(to + at, chunk, chunk_bytes);
    }
}

}  // namespace penstock::trace
