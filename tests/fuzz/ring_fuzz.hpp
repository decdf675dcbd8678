// One fuzz input: a stream of bytes taken as requests of a hostile device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace penstock::fuzz {

// Returns an empty string, or what the service did wrong. `root` holds the files "a" (1300 bytes)
// and "b" (512 bytes) with byte i = i * 7 + the letter. Inputs of which a bit is set open files for
// writing too; those may change the file "c" and no other.
std::string fuzz_ring(const std::string& root, const std::uint8_t* data, std::size_t size);

// Makes such a folder below the system's temporary directory; it is removed when the program ends.
const std::string& fuzz_root();

}  // namespace penstock::fuzz
