// An open file of the host, with the choice of the way its reads go. It closes its handles with the
// last holder, so that a read in flight keeps the file it started on. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "hub/hub.hpp"
#include "os/env.hpp"
#include "penstock/options.hpp"

namespace penstock::host {

// Chooses the way for reads of a file, from the outcome of earlier reads. All threads that read the
// file share it. Each word stands for itself, so they are relaxed, and a decision made from words
// of different moments is only a worse guess.

// at_once: from the page cache or not at all. queued: by io_uring or pread, through the page cache.
// direct: past it.
enum class read_way : std::uint8_t { at_once, queued, direct };

class read_choice {
public:
    read_choice() = default;
    ~read_choice() { delete[] seen_.load(); }
    read_choice(const read_choice&) = delete;
    read_choice& operator=(const read_choice&) = delete;

    // Is it likely that the page cache has the bytes of the next read? A file counts as warm until
    // a read at once finds nothing, and again after `proof` reads that found their bytes; meanwhile
    // only some reads are tried at once.
    [[nodiscard]] bool is_warm() const;
    [[nodiscard]] bool is_time_to_try();
    void found_cached();
    void found_absent();

    // Should a read that the page cache does not have go past it? Yes if reads of this file lately
    // came at random, when read-ahead would bring unwanted pages, and this read comes for the first
    // time. A read that comes again goes through the page cache, so that the page cache serves the
    // third.
    [[nodiscard]] bool pays_to_go_past(std::uint64_t offset, std::uint32_t bytes);

    static constexpr std::uint32_t proof = 8;
    // More than the number of sequential readers that are recognised as such.
    static constexpr std::int32_t far_enough = 17;
    // Longer reads keep a disk busy either way.
    static constexpr std::uint32_t longest_random = 64 << 10;
    // Sequential reads may be this far apart, whichever thread comes first.
    static constexpr std::uint64_t near_bytes = 4 << 20;

private:
    bool looks_random(std::uint64_t offset);
    bool is_first(std::uint64_t offset);

    static constexpr std::uint64_t none = ~std::uint64_t{0};
    static std::array<std::atomic<std::uint64_t>, 16> make_recent() {
        return {none, none, none, none, none, none, none, none,
                none, none, none, none, none, none, none, none};
    }
    static constexpr std::size_t seen_words = 32768;  // 256 KiB of bits

    std::atomic<std::uint32_t> lately_cached_{proof}, tries_{0}, turn_{0};
    std::atomic<std::int32_t> far_{0};
    std::array<std::atomic<std::uint64_t>, 16> recent_ = make_recent();
    std::atomic<std::uint64_t*> seen_{nullptr};
};

// The settings that all files of a runtime share; they outlive the files.
struct read_settings {
    direct_mode direct = direct_mode::off;
    std::uint64_t page_bytes = 65536;
    std::function<void(const std::string&)> say;  // a line for the log, at most once
    std::atomic<bool> said{false};
};

class shared_handle {
public:
    shared_handle(environment& env, int fd, read_settings* settings = nullptr)
        : env_(env), fd_(fd), settings_(settings) {}
    ~shared_handle();
    shared_handle(const shared_handle&) = delete;
    shared_handle& operator=(const shared_handle&) = delete;
    [[nodiscard]] int fd() const { return fd_; }
    // Expires once the handle is closed. A weak pointer to the handle itself expires before.
    [[nodiscard]] std::weak_ptr<const void> open_mark() const { return open_mark_; }
    // Which file it is: asked once.
    [[nodiscard]] file_key key() const {
        // Acquire: pairs with the release below; both words are there.
        if (!key_known_.load(std::memory_order_acquire)) {
            file_facts facts;
            if (env_.facts(fd_, facts) != 0) return {};
            device_.store(facts.identity.device, std::memory_order_relaxed);
            inode_.store(facts.identity.inode, std::memory_order_relaxed);
            key_known_.store(true, std::memory_order_release);
        }
        return {device_.load(std::memory_order_relaxed), inode_.load(std::memory_order_relaxed)};
    }
    // environment::changes_elsewhere: asked once, since a server may have to answer.
    [[nodiscard]] bool changes_elsewhere() const {
        int known = changes_elsewhere_.load(std::memory_order_relaxed);  // says all by itself
        if (known < 0) {
            known = env_.changes_elsewhere(fd_) ? 1 : 0;
            changes_elsewhere_.store(known, std::memory_order_relaxed);
        }
        return known != 0;
    }
    // False: its reads go past the page cache, whatever that has.
    [[nodiscard]] bool uses_page_cache() const { return mode() != direct_mode::on; }

    // Makes the operation ready to start. A direct read has the length that the file system
    // demands, which may be more than the caller asked for; then the rest of the page at its
    // address is written to as well.
    read_way choose(read_operation& operation, const io_engine& io);
    // Must be told the result of each read. True: the way was wrong and the file has not answered
    // yet; start again as choose_other says.
    [[nodiscard]] bool must_go_another_way(read_way way, std::int64_t result);
    read_way choose_other(read_operation& operation) const;

private:
    [[nodiscard]] direct_mode mode() const {
        return settings_ != nullptr ? settings_->direct : direct_mode::off;
    }
    [[nodiscard]] bool make_direct(read_operation& operation);
    int direct_fd();
    void refuse_direct(int code);

    // Values in place of a handle for direct reads. `opening`: another thread is opening it, and
    // reads go the other way meanwhile.
    static constexpr int not_yet = -1, opening = -2, refused = -3;

    const std::shared_ptr<const void> open_mark_ = std::make_shared<char>();
    environment& env_;
    const int fd_;
    read_settings* const settings_;
    std::atomic<bool> at_once_refused_{false}, direct_refused_{false};
    std::atomic<int> direct_fd_{not_yet};
    std::uint32_t grain_bytes_ = 0;  // written before direct_fd_ is
    read_choice choice_;
    mutable std::atomic<bool> key_known_{false};
    mutable std::atomic<std::uint64_t> device_{0}, inode_{0};
    mutable std::atomic<int> changes_elsewhere_{-1};  // not known yet
};

}  // namespace penstock::host
