// A page of numbers that a process keeps for other programs of the same user, and the way by which
// they find it: docs/protocol/statistics_page.md has the protocol.
//
// The page is sealed memory without a name in any directory (os/shared_memory.hpp). It goes with
// the process, however that ends, so there is nothing to clean up. A reader finds it among the
// descriptors of the processes of its user, below /proc. Names of the numbers stand in the page, so
// reader and owner may be of different versions.
//
// Only the owner writes, and there one thread, except for the word `asked`, which only readers
// change. The owner believes nothing but that word, and a reader believes no bounds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "os/process_owner.hpp"
#include "os/shared_memory.hpp"

namespace penstock::host {

inline constexpr std::uint64_t statistics_page_bytes = 8192;
inline constexpr std::uint64_t most_statistics_words = 256;
inline constexpr std::uint64_t statistics_names_at = 4096;  // where the text of the names begins
inline constexpr std::uint64_t statistics_magic = 0x3174'6174'736e'6570;  // "penstat1"
inline constexpr std::uint64_t statistics_layout = 1;

struct statistics_page_layout {
    // Written before the magic, and never changed after it.
    std::uint64_t magic, layout;
    std::uint64_t pid, start_ticks;  // of the owner, as it sees itself
    std::uint64_t word_count, names_bytes;
    std::uint64_t reserved[10];
    // Readers add to it. A line of its own: the monitor loads it with each beat.
    std::uint64_t asked;
    std::uint64_t reserved_of_readers[15];
    std::uint64_t number;    // odd: under change
    std::uint64_t answered;  // what `asked` was before these words were counted
    std::uint64_t taken_ns;  // CLOCK_MONOTONIC
    std::uint64_t reserved_of_owner[13];
    std::uint64_t words[most_statistics_words];
};
static_assert(sizeof(statistics_page_layout) <= statistics_names_at);

class statistics_page {
public:
    statistics_page() = default;
    ~statistics_page();
    statistics_page(const statistics_page&) = delete;
    statistics_page& operator=(const statistics_page&) = delete;

    // Once. `names` has a line for each word, or for several: "latency_ns[32]". 0 or a negative
    // errno.
    int make(const std::string& names, std::uint64_t word_count);
    // The number of the last question; as high as `answers` of the last publish(): there is none. A
    // load.
    [[nodiscard]] std::uint64_t asked() const;
    // As many words as make() was told.
    void publish(std::span<const std::uint64_t> words, std::uint64_t answers);
    [[nodiscard]] int fd() const { return memory_.fd(); }

private:
    [[nodiscard]] statistics_page_layout& page() const;

    const process_owner owner_{};
    shared_memory memory_;
};

struct statistics_snapshot {
    std::vector<std::uint64_t> words;
    std::uint64_t answered = 0;
    std::uint64_t taken_ns = 0;
};

// A page of another process. Movable; unmaps at its end.
class statistics_reader {
public:
    statistics_reader() = default;
    ~statistics_reader();
    statistics_reader(statistics_reader&& other) noexcept
        : begin_(std::exchange(other.begin_, nullptr)), words_(other.words_) {}
    statistics_reader& operator=(statistics_reader&&) = delete;

    // 0, or a negative errno: -EPROTO, it is no such page, or of another layout.
    int open(int fd);
    [[nodiscard]] std::uint64_t pid() const;
    [[nodiscard]] std::uint64_t start_ticks() const;
    [[nodiscard]] std::string names() const;
    // Asks the owner to count. The number to wait for.
    std::uint64_t ask();
    // 0, or -EAGAIN: the words were under change at each of some tries.
    int read(statistics_snapshot& out) const;

private:
    [[nodiscard]] const statistics_page_layout& page() const;

    std::byte* begin_ = nullptr;
    std::uint64_t words_ = 0;
};

struct found_statistics {
    int pid = 0;          // as this process sees it
    std::string program;  // the name that the kernel has of it
    statistics_reader page;
};

// The pages of all processes of this user, by their numbers; or of those that are named. 0, or
// -EMFILE, -ENFILE, -ENOMEM: there may be too few descriptors, or too little memory, to look.
int find_statistics(std::vector<found_statistics>& out, const std::vector<int>& pids = {});

// When the process began, in ticks of the kernel since the start of the machine; 0: it is not
// there. `pid` 0: this process.
std::uint64_t start_ticks_of(int pid);

}  // namespace penstock::host
