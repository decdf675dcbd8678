// The hash tables of a library, from the features of its tiles.
#pragma once

#include <atomic>
#include <cstdint>

#include "library.hpp"
#include "staging_folder.hpp"

namespace penstock::collage {

// The width at which all but the poorest tenth of the tiles find eight others or more in a bucket
// on average: then blocks unlike most of the library still meet candidates, and most blocks some
// hundred. Found on a sample of the tiles.
status choose_width(const staged_file& tile_features, std::uint64_t tile_count, std::uint64_t seed,
                    std::uint32_t& width);

// Writes the files lsh-NN and their numbers of entries into the header, whose other fields are set.
// `done` counts tables.
status build_tables(const staged_file& tile_features, const staging_folder& folder,
                    library_header& header, std::uint32_t threads,
                    std::atomic<std::uint64_t>& done);

}  // namespace penstock::collage
