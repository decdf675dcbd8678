// Room for the tables of a runtime: memory that kernels reach, of which each table has its runs and
// its note. It is had when the first table is made, for a runtime may have none.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "device/device.hpp"
#include "files/extent_allocator.hpp"
#include "penstock/engine/table_rows.hpp"
#include "penstock/error.hpp"

namespace penstock::host {

class table_room {
public:
    static constexpr std::uint64_t most_runs = 32768, most_tables = 1024;

    // What a table has of it.
    struct share {
        std::uint64_t first_run = 0, runs = 0, note = 0;
        engine::table_run* run_words = nullptr;  // device memory
        std::uint64_t* claimed = nullptr;        // device memory
        engine::table_note* words = nullptr;     // host memory
    };

    // Takes a share for so many runs and clears its note. -ENOMEM; the message says of what. What a
    // device gave before it refused the rest stays here, and the next call asks for the rest alone.
    template <typename Device>
    status take(Device& device, std::uint64_t runs, share& out) {
        const std::lock_guard lock(mutex_);
        if (!has_memory_of(device)) return {-ENOMEM, "for tables, " + device.shortage()};
        const auto note = free_notes_.take(1);
        const auto first = note ? free_runs_.take(runs) : std::nullopt;
        if (!first) {
            if (note) free_notes_.give(*note, 1);
            return {-ENOMEM, "a runtime has room for " + std::to_string(most_tables) +
                                 " tables with " + std::to_string(most_runs) +
                                 " pieces of files in all; close some, or make another runtime"};
        }
        out = {*first, runs, *note, runs_ + *first, claimed_ + *note, notes_ + *note};
        const std::uint64_t nothing = 0;
        *out.words = {};
        const int code = device.upload(out.claimed, &nothing, 8);
        if (code != 0) give_locked(out);
        return {code, code == 0 ? "" : "for tables: " + error_text(code)};
    }
    // Needs no memory: a table that ends could not say that there is none.
    void give(const share& of) {
        const std::lock_guard lock(mutex_);
        give_locked(of);
    }

private:
    template <typename Device>
    bool has_memory_of(Device& device) {
        if (runs_ == nullptr)
            runs_ = static_cast<engine::table_run*>(
                device.allocate_device(most_runs * sizeof(engine::table_run)));
        if (runs_ != nullptr && claimed_ == nullptr)
            claimed_ = static_cast<std::uint64_t*>(device.allocate_device(most_tables * 8));
        if (claimed_ != nullptr && notes_ == nullptr)
            notes_ = static_cast<engine::table_note*>(
                device.allocate_shared(most_tables * sizeof(engine::table_note)));
        return notes_ != nullptr;  // the last
    }
    void give_locked(const share& of) {
        free_notes_.give(of.note, 1);
        free_runs_.give(of.first_run, of.runs);
    }

    std::mutex mutex_;  // guards everything below
    extent_allocator free_runs_{most_runs}, free_notes_{most_tables};
    // Null: not had yet. Each is there before the next is asked for.
    engine::table_run* runs_ = nullptr;
    std::uint64_t* claimed_ = nullptr;
    engine::table_note* notes_ = nullptr;
};

}  // namespace penstock::host
