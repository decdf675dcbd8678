// A region that is filled: its memory, and its part in the file's home.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "region/region_body.hpp"
#include "region/request_thread.hpp"
#include "region/shared_home.hpp"

namespace penstock::region {

class mapped_region final : public region_body {
public:
    mapped_region(std::shared_ptr<shared_home> home, std::unique_ptr<region_memory> memory,
                  std::string path, std::function<void(const std::string&)> say,
                  std::chrono::milliseconds request_wait);
    ~mapped_region() override;

    // Called before anything else: takes the region's place among the regions that share the file.
    int join(const page_range& pages, std::uint64_t end_bytes, const region_options& settings,
             bool writable, const direct_order& direct);

    [[nodiscard]] void* data() const override {
        return memory_ == nullptr ? nullptr : memory_->data();
    }
    [[nodiscard]] std::uint64_t size_bytes() const override { return size_bytes_; }
    std::int64_t acquire(const region_part& part, void* stream) override;
    std::int64_t release(const region_part& part, void* stream) override;
    std::shared_ptr<request_end> acquire_async(const region_part& part, void* stream) override;
    std::shared_ptr<request_end> release_async(const region_part& part, void* stream) override;
    int sync() override;
    std::int64_t prefer(std::uint64_t offset, std::uint64_t bytes, void* stream) override;
    int close(void* stream) override;
    int detach(void* stream) override;
    [[nodiscard]] region_traffic traffic() const override;

private:
    // The pages of the file that the part lies in. -EINVAL: it is not in the region.
    int settle(const region_part& part, page_range& out) const;
    // Without a stream: for a request, which comes after the work on the caller's stream already.
    std::int64_t acquire_now(const page_range& pages, std::optional<void*> stream);
    std::int64_t release_now(const page_range& pages, std::optional<void*> stream);
    std::int64_t release_locked(const page_range& pages, void* stream, const char* operation);
    std::int64_t promote(void* stream);
    void say_late() const;
    [[nodiscard]] page_range all_pages() const {
        return {first_page_, first_page_ + (size_bytes_ + page_bytes - 1) / page_bytes};
    }
    std::int64_t told(std::int64_t code, const char* operation);
    int close_locked(void* stream);
    void leave();
    int end(void* stream, bool keeps_memory);

    std::shared_ptr<shared_home> home_;  // null: closed; guarded by mutex_ since join()
    std::unique_ptr<region_memory> memory_;
    const std::string path_;
    const std::function<void(const std::string&)> say_;
    mutable std::mutex mutex_;  // one call at a time; guards all below and the memory
    bool open_ = false, writable_ = false, promote_hot_ = false;
    bool neighbour_said_ = false;  // the log has said that other regions' pages cannot be copied
    bool loss_said_ = false;       // the log has said that its changes are lost with the device
    consistency::place place_ = 0;
    std::uint64_t first_page_ = 0, size_bytes_ = 0;  // since join()
    region_traffic traffic_;
    request_thread requests_;  // the last: it ends before what its requests use
};

}  // namespace penstock::region
