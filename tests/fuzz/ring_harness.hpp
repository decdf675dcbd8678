// A service thread with a ring that the test plays the device for: it may write anything into it.
#pragma once

#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fault/faulty_environment.hpp"
#include "files/file_registry.hpp"
#include "service/service.hpp"
#include "penstock/base/atomic.hpp"
#include "penstock/engine/ring.hpp"

namespace penstock::fuzz {

using engine::op;
using engine::ring_reply;
using engine::ring_request;

// Memory whose last byte is the last that may be touched: the page behind it is forbidden.
class fenced_memory {
public:
    explicit fenced_memory(std::size_t bytes)
        : bytes_(bytes), mapped_(((bytes + 4095) & ~std::size_t{4095}) + 4096) {
        base_ =
            ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base_ == MAP_FAILED ||
            ::mprotect(static_cast<char*>(base_) + mapped_ - 4096, 4096, PROT_NONE) != 0)
            std::abort();
    }
    ~fenced_memory() { ::munmap(base_, mapped_); }
    fenced_memory(const fenced_memory&) = delete;
    fenced_memory& operator=(const fenced_memory&) = delete;
    [[nodiscard]] void* data() const { return static_cast<char*>(base_) + mapped_ - 4096 - bytes_; }

private:
    std::size_t bytes_, mapped_;
    void* base_;
};

class ring_harness {
public:
    static constexpr std::uint32_t slots = 8, page_shift = 9, page_bytes = 1 << page_shift,
                                   stride = 4096, file_slots = 16, tier_frames = 24;
    static constexpr std::uint64_t word_count = 4096;
    static constexpr std::byte guard{0xc3};

    // `writable`: files may be opened for writing. `real` is what the disk with faults stands
    // before.
    explicit ring_harness(const std::string& root, const fault::fault_plan& plan = {},
                          bool writable = false,
                          host::environment& real = host::linux_environment())
        : disk(real) {
        disk.set(plan);
        files = std::make_unique<host::file_registry>(
            disk, shared,
            host::registry_limits{file_slots, page_shift, 6, word_count, 256, 8, direct_mode::off,
                                  writable, 4});
        if (!files->set_roots({root})) std::abort();
        std::memset(staging(), static_cast<int>(guard), std::size_t{slots} * stride);
        host::service_settings settings;
        settings.page_shift = page_shift;
        settings.tier = {static_cast<std::byte*>(tier_memory_.data()),
                         static_cast<std::uint64_t*>(mark_memory_.data()), tier_frames};
        std::string why;
        service = std::make_unique<host::service>(
            std::vector{host::host_ring{requests(), replies(), staging(), stride, slots}}, *files,
            disk, disk.make_io_engine(false, slots, why), nullptr, settings);
        service->start();
    }
    ~ring_harness() { disk.release(); }

    [[nodiscard]] ring_request* requests() const {
        return static_cast<ring_request*>(request_memory_.data());
    }
    [[nodiscard]] ring_reply* replies() const {
        return static_cast<ring_reply*>(reply_memory_.data());
    }
    [[nodiscard]] std::byte* staging() const {
        return static_cast<std::byte*>(staging_memory_.data());
    }
    [[nodiscard]] std::byte* staging(std::uint64_t ticket) const {
        return staging() + ticket % slots * stride;
    }

    // Publishes the request under the next ticket, which it returns. `published` as given, or the
    // right one.
    std::uint64_t post(const ring_request& request) {
        ring_request& slot = requests()[next % slots];
        slot.operation = request.operation;
        slot.bytes = request.bytes;
        slot.file_slot = request.file_slot;
        slot.generation = request.generation;
        slot.offset = request.offset;
        slot.argument = request.argument;
        slot.lost_extent = request.lost_extent;
        slot.open_slot = request.open_slot;
        publish(next + 1);
        return next++;
    }
    // What a wrong device might leave in the word of the next slot.
    void publish(std::uint64_t value) {
        atomic_store<order::release, scope::system>(&requests()[next % slots].published, value);
    }

    [[nodiscard]] bool answered(std::uint64_t ticket) const {
        return (atomic_load<order::acquire, scope::system>(&replies()[ticket % slots].completed) &
                ~engine::whole_bit) == ticket + 1;
    }
    // Waits at most a second (ten under a sanitizer's load).
    [[nodiscard]] bool await(std::uint64_t ticket) const {
        const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(10);
        while (!answered(ticket)) {
            if (std::chrono::steady_clock::now() > end || !service->alive()) return false;
            std::this_thread::yield();
        }
        return true;
    }
    [[nodiscard]] const std::byte* tier_frame(std::uint32_t frame) const {
        return static_cast<const std::byte*>(tier_memory_.data()) + std::size_t{frame} * page_bytes;
    }
    [[nodiscard]] std::uint64_t done_mark(std::uint32_t frame) const {
        return atomic_load<order::acquire, scope::system>(
            static_cast<const std::uint64_t*>(mark_memory_.data()) + frame);
    }
    [[nodiscard]] const ring_reply& reply(std::uint64_t ticket) const {
        return replies()[ticket % slots];
    }

    // Opens as an honest group would. Negative: the service did not answer.
    std::int64_t open(const std::string& name, std::uint32_t& slot, std::uint32_t& generation,
                      std::uint32_t flags = 0) {
        std::memcpy(staging(next), name.data(), name.size());
        ring_request request{};
        request.operation = op::open;
        request.bytes = static_cast<std::uint32_t>(name.size());
        request.file_slot = flags;
        const std::uint64_t ticket = post(request);
        if (!await(ticket)) return -ETIMEDOUT;
        slot = static_cast<std::uint32_t>(reply(ticket).words[engine::reply_slot_and_generation]);
        generation = static_cast<std::uint32_t>(
            reply(ticket).words[engine::reply_slot_and_generation] >> 32);
        return reply(ticket).result;
    }

    // Did the service write only where a page of this slot goes? The first `used` bytes of the slot
    // may have changed.
    [[nodiscard]] bool guards_hold(std::uint64_t ticket, std::uint32_t used) const {
        for (std::uint32_t i = used; i < stride; ++i)
            if (staging(ticket)[i] != guard) return false;
        return true;
    }
    void restore_guards() const {
        std::memset(staging(), static_cast<int>(guard), std::size_t{slots} * stride);
    }

    std::uint64_t next = 0;
    fault::faulty_environment disk;
    host::hub shared;
    std::unique_ptr<host::file_registry> files;

private:
    fenced_memory request_memory_{slots * sizeof(ring_request)},
        reply_memory_{slots * sizeof(ring_reply)}, staging_memory_{std::size_t{slots} * stride},
        tier_memory_{std::size_t{tier_frames} * page_bytes},
        mark_memory_{tier_frames * sizeof(std::uint64_t)};

public:
    std::unique_ptr<host::service> service;  // stops first
};

}  // namespace penstock::fuzz
