#include "whole_reader.hpp"

namespace penstock::sssp {

status whole_reader::read_all(std::byte* to) const {
    return each_piece([&](std::uint32_t, std::uint64_t at,
                          std::uint64_t bytes) { return read(to + at, bytes, at); },
                      [](std::uint32_t) { return status{}; });
}

}  // namespace penstock::sssp
