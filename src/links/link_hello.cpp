#include "links/link_hello.hpp"

#include <cerrno>
#include <cstring>

#include "links/life_directory.hpp"
#include "penstock/base/hash.hpp"
#include "penstock/options.hpp"
#include "penstock/version.hpp"

namespace penstock::host {

namespace {

constexpr std::uint64_t hello_magic = 0x6b636f74736e6570;  // "penstock"
// Another one for other meanings of the messages, or other rules for them.
constexpr std::uint64_t meaning_of_messages = 3;

std::uint64_t with(std::uint64_t hash, std::uint64_t value) { return mix64(hash * 31 + value); }

std::string page_text(std::uint64_t shift) { return format_size(std::uint64_t{1} << shift); }

}  // namespace

std::uint64_t link_layout() {
    using namespace engine;
    std::uint64_t hash = hello_magic;
    for (const char* letter = version(); *letter != '\0'; ++letter)
        hash = with(hash, static_cast<unsigned char>(*letter));
    for (const std::uint64_t value :
         {meaning_of_messages, std::uint64_t{sizeof(page_word)}, std::uint64_t{sizeof(file_word)},
          std::uint64_t{sizeof(write_record)}, std::uint64_t{offsetof(write_record, granted)},
          std::uint64_t{sizeof(life_record)}, std::uint64_t{sizeof(life_header)},
          std::uint64_t{listed_changes}, std::uint64_t{sizeof(link_hello)},
          std::uint64_t{state_valid}, std::uint64_t{file_generation_mask},
          std::uint64_t{make_file_word(file_live, 1, 1)}, std::uint64_t{max_file_slots},
          make_entry_life(1, 2, 3, true)})
        hash = with(hash, value);
    return hash;
}

int prepare_hello(cache_device& device, const engine::cache_view& view, prepared_hello& out) {
    link_hello& hello = out.message;
    hello.magic = hello_magic;
    hello.layout = link_layout();
    hello.page_shift = view.page_shift;
    hello.leaf_shift = view.leaf_shift;
    hello.word_count = view.word_count;
    hello.frame_count = view.frame_count;
    hello.file_slots = view.file_slots;
    hello.writes = view.writes != nullptr ? 1 : 0;
    const std::string identity = device.identity();
    if (identity.empty() || identity.size() >= sizeof hello.identity) return -ENODEV;
    std::memcpy(hello.identity, identity.c_str(), identity.size() + 1);
    const auto add = [&](const void* memory, std::uint64_t& bytes) {
        const int handle = device.handle_of(memory, bytes);
        if (handle >= 0) out.fds.fd[out.fds.count++].reset(handle);
        return handle < 0 ? handle : 0;
    };
    int code = add(view.words, hello.words_bytes);
    if (code == 0) code = add(view.file_words, hello.file_words_bytes);
    if (code == 0) code = add(view.frames, hello.frames_bytes);
    if (code == 0 && view.writes != nullptr) code = add(view.writes, hello.writes_bytes);
    return code;
}

bool is_begin_of_hello(const link_hello& hello) { return hello.magic == hello_magic; }

std::string why_not(const link_hello& h, std::size_t size, std::size_t fds,
                    std::uint32_t page_shift) {
    if (size != sizeof h || h.magic != hello_magic || h.layout != link_layout())
        return "it is of another version of Penstock";
    if (h.page_shift != page_shift)
        return "its pages have " +
               (h.page_shift < 64 ? page_text(h.page_shift) : std::string("another size")) +
               ", and these " + page_text(page_shift) + "; give both the same page_bytes";
    const bool sound =
        h.writes <= 1 && h.comes_again <= 1 && (h.writes == 0) == (h.writes_bytes == 0) &&
        fds == 4 + h.writes && h.leaf_shift < 40 && h.word_count != 0 &&
        h.word_count <= h.words_bytes / sizeof(engine::page_word) && h.file_slots != 0 &&
        h.file_slots <= engine::max_file_slots &&
        h.file_slots <= h.file_words_bytes / sizeof(engine::file_word) && h.frame_count != 0 &&
        h.frame_count <= UINT32_MAX && h.frame_count <= h.frames_bytes >> h.page_shift &&
        (h.writes == 0 || h.file_slots <= h.writes_bytes / sizeof(engine::write_record)) &&
        directory_bytes(h.file_slots) <= h.directory_bytes &&
        std::memchr(h.identity, '\0', sizeof h.identity) != nullptr;
    return sound ? "" : "what it tells of its sizes is wrong";
}

}  // namespace penstock::host
