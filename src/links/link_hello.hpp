// What two runtimes of different processes tell each other, and the judgement of it.
//
//   hello     the first message, each way: layout, sizes, and descriptors of the cache's arrays and
//             of its directory (links/life_directory.hpp)
//   changed   "read my directory up to this version": a file is about to be written. The other
//             answers
//   seen      with the version up to which it has withdrawn what it read from the sender; before
//             the link is made, with that of `changed`
//   bye       the sender ends
//
// Nothing of it is believed: a hello of another layout or page size is refused, and sizes are
// bounds that the memory has to have.
#pragma once

#include <cstdint>
#include <string>

#include "device/device.hpp"
#include "os/link_socket.hpp"
#include "penstock/engine/layout.hpp"

namespace penstock::host {

enum class link_verb : std::uint64_t { hello = 1, changed, seen, bye };

struct link_message {
    link_verb verb;
    std::uint64_t version;
};

struct link_hello {
    std::uint64_t magic;
    std::uint64_t layout;  // the hash of all that both have to see alike
    std::uint64_t id;      // of the runtime (rendezvous::id)
    std::uint64_t page_shift, leaf_shift, word_count, frame_count, file_slots, writes;
    // Of the descriptors, in this order; without a writing runtime there are no write records.
    std::uint64_t words_bytes, file_words_bytes, frames_bytes, writes_bytes, directory_bytes;
    std::uint64_t comes_again;  // 1: the sender made this connection after its folder had gone
    char identity[64];          // of the device, and a zero
};
static_assert(sizeof(link_hello) % 8 == 0);

// Of this build.
std::uint64_t link_layout();

// The hello of this cache, without its id. `fds`: descriptors to send with it, which the caller
// closes. 0, or a negative errno.
struct prepared_hello {
    link_hello message{};
    received_fds fds;
};
int prepare_hello(cache_device& device, const engine::cache_view& view, prepared_hello& out);

// Whether these are the first bytes of a hello, of this version or of another one.
bool is_begin_of_hello(const link_hello& hello);

// Is it the hello of a cache that one of `page_shift` may read? Empty, or why not.
std::string why_not(const link_hello& hello, std::size_t size, std::size_t fds,
                    std::uint32_t page_shift);

}  // namespace penstock::host
