// The write errors: which files could not be written, for the log and for runtime::write_status().
// The calls of the device return only a code.
//
// The log gets one line for each file. It gets another line for the file only after an fsync of it
// found that nothing failed since the last fsync, or after it was closed and all of it written. A
// full disk would otherwise leave a line for every page.
//
// Thread-safe. Never called with the registry's lock held.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "penstock/error.hpp"

namespace penstock::host {

class write_error_log {
public:
    // A file in one of the lives of its slot.
    using file_key = std::pair<std::uint32_t, std::uint32_t>;

    explicit write_error_log(std::function<void(const std::string&)> say) : say_(std::move(say)) {}

    // Tells that the bytes [begin, end) of the file could not be written, and stay in the cache.
    void write_failed(const file_key& file, const std::string& path, std::uint64_t begin,
                      std::uint64_t end, std::int64_t code);
    // Tells that bytes written to the file may not have reached its storage.
    void sync_failed(const file_key& file, const std::string& path, std::int64_t code);
    // Tells that an fsync of the file has ended.
    void synced(const file_key& file);
    // Tells that the file was closed and all of it written, or that its slot belongs to another
    // file.
    void forget(const file_key& file);

    // The first of all failures since the last clear.
    [[nodiscard]] status first() const;
    void clear();

private:
    void note(const file_key& file, std::int64_t code, const std::string& message,
              const std::string& cure);

    const std::function<void(const std::string&)> say_;
    mutable std::mutex mutex_;        // guards everything below
    std::map<file_key, bool> files_;  // files in the log: did anything fail since the last fsync?
    status first_;
};

}  // namespace penstock::host
