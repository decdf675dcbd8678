// A region in the operating system's page cache: one mapping of a part of a file, for reading.
//
// Nothing is copied, so there is nothing to bring up to date: what programs and other regions write
// to the file goes to the pages that kernels read. It has no place among the copies in the file's
// home (region/shared_home.hpp).
//
// Pages that are registered with a GPU are pinned, and a pinned page that leaves the file lives on
// for the GPU alone. So the pages are watched (os/page_watch.hpp). If the file changed, acquire
// looks which parts have pages that left, and registers these parts anew, at the same addresses.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "os/page_watch.hpp"
#include "region/mapping_reader.hpp"
#include "region/region_body.hpp"
#include "region/region_memory.hpp"
#include "region/shared_home.hpp"

namespace penstock::region {

// `bytes` from `offset` on, a multiple of the page size, of the file that has this home.
struct file_part {
    std::shared_ptr<shared_home> home;
    std::string path;
    std::uint64_t offset = 0, bytes = 0;
};

class in_place_region final : public region_body {
public:
    in_place_region(file_part part, std::unique_ptr<mapping_reader> reader,
                    std::function<void(const std::string&)> say);
    ~in_place_region() override;

    // Called before anything else: maps the part and lets the device read it. After an error the
    // region is closed.
    status open();

    [[nodiscard]] void* data() const override { return data_; }
    [[nodiscard]] std::uint64_t size_bytes() const override { return part_.bytes; }
    std::int64_t acquire(const region_part& part, void* stream) override;
    std::int64_t release(const region_part& part, void* stream) override;
    // Nothing is moved, so what is asked for is done at once.
    std::shared_ptr<request_end> acquire_async(const region_part& part, void* stream) override {
        return ended(belongs_here() ? acquire(part, stream) : -ECHILD);
    }
    std::shared_ptr<request_end> release_async(const region_part& part, void* stream) override {
        return ended(belongs_here() ? release(part, stream) : -ECHILD);
    }
    int sync() override;
    std::int64_t prefer(std::uint64_t offset, std::uint64_t bytes, void* stream) override;
    int close(void* stream) override;
    int detach(void* stream) override;
    [[nodiscard]] region_traffic traffic() const override;

private:
    using part_step = std::function<status(std::uint64_t)>;
    status for_parts(const part_step& step);
    status reach_all();
    status reach(std::uint64_t number);
    void say_unwatched(int code);
    int look(host::file_facts& facts) const;
    int bring_up_to_date(void* stream);
    int replace_parts(void* stream, const host::file_facts& facts);
    void remove(std::uint64_t number);
    void close_locked();
    [[nodiscard]] bool is_open() const { return data_ != nullptr && !is_detached_; }
    std::int64_t told(std::int64_t code, const char* operation);

    file_part part_;  // its home is null since close() or detach(), and guarded by mutex_
    host::environment& env_;
    const std::uint64_t mapped_bytes_;  // in whole pages
    const std::unique_ptr<mapping_reader> reader_;
    const std::function<void(const std::string&)> say_;
    mutable std::mutex mutex_;  // one call at a time; guards all below
    std::byte* data_ = nullptr;
    bool is_detached_ = false;
    helpers threads_;
    std::uint64_t part_bytes_ = 0;  // of a registration
    std::vector<char> registered_;  // by the number of the part
    host::page_watch pages_;
    std::atomic<int> watch_code_{0};  // or why pages are not watched
    // When the parts were last the file's: its identity, and whether it may have changed since
    // though it looks the same.
    host::file_identity known_;
    bool doubtful_ = true;
    bool loss_said_ = false;  // the log has said that the device is lost
    region_traffic traffic_;
};

}  // namespace penstock::region
