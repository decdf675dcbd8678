// Sequences of pages to try policies on, each from a seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::bench::policy {

struct trace {
    std::string name;
    std::vector<std::uint32_t> pages;
};

// Every kind, over `pages` pages and `length` accesses:
//   uniform      every page as likely as every other
//   zipf         the n-th page with probability 1/n^0.9, in no order of place
//   loop         all pages from front to back, again and again: larger than any cache that is tried
//   scan and hot one half goes to a 16th of the pages, skewed; the other half scans the file
//   shift        a working set of an 8th, skewed, that moves elsewhere four times over while it is
//                used
//   streams      many warps: 64 streams, each in a stretch of its own, touch a page four times in a
//                row while they stride; every eighth access goes to an index that all share
std::vector<trace> make_traces(std::uint32_t pages, std::uint64_t length, std::uint64_t seed);

}  // namespace penstock::bench::policy
