// A region on the cpu back end: ordinary memory; each worker is the thread that calls.

#include <algorithm>
#include <cerrno>
#include <thread>

#include "os/anonymous_memory.hpp"
#include "penstock/group/lane.hpp"
#include "region/cache_fill.hpp"
#include "region/mapping_reader.hpp"

namespace penstock::region {

namespace {

constexpr unsigned most_threads = 16;
constexpr std::uint64_t worker_bytes = staging_pages * page_bytes + batch_pages * mark_bytes;

class cpu_memory final : public region_memory {
public:
    bool take(const memory_shape& shape) {
        pages_ = shape.pages;
        workers_ =
            workers_for(pages_, std::clamp(std::thread::hardware_concurrency(), 1u, most_threads));
        return replica_.take(pages_ * page_bytes) &&
               (!shape.writable || base_.take(pages_ * page_bytes)) &&
               staging_.take(workers_ * worker_bytes);
    }

    [[nodiscard]] std::byte* data() const override { return replica_.at(0); }
    [[nodiscard]] std::uint64_t bytes_on_device() const override { return pages_ * page_bytes; }
    [[nodiscard]] unsigned workers() const override { return workers_; }
    [[nodiscard]] std::byte* staging(unsigned worker) const override {
        return staging_.at(worker * worker_bytes);
    }
    [[nodiscard]] std::byte* marks(unsigned worker) const override {
        return staging(worker) + staging_pages * page_bytes;
    }

    int begin(void*) override { return 0; }
    int wait(unsigned) override { return 0; }

    int fill(unsigned, const std::byte* from, const std::vector<staged_page>& pages) override {
        for (const staged_page& page : pages)
            fill_page(lane{}, replica_.at(page.number * page_bytes),
                      base_.at(page.number * page_bytes), from + page.slot * page_bytes);
        return 0;
    }
    const std::byte* read_direct(unsigned worker, host::direct_file& file, std::uint64_t bytes,
                                 std::uint64_t offset) override {
        return file.read(staging(worker), bytes, offset) ? staging(worker) : nullptr;
    }
    int fill_from_cache(unsigned, const host::lent_file& from,
                        std::vector<staged_page>& pages) override {
        for (staged_page& page : pages)
            page.slot = region::fill_from_cache(
                            lane{}, from.runtime->view, {from.slot, from.generation},
                            page.slot * page_bytes, replica_.at(page.number * page_bytes),
                            base_.at(page.number * page_bytes))
                            ? 1
                            : 0;
        return 0;
    }
    int collect(unsigned worker, const std::vector<std::uint64_t>& numbers) override {
        for (std::size_t i = 0; i < numbers.size(); ++i)
            collect_page(lane{}, replica_.at(numbers[i] * page_bytes),
                         base_.at(numbers[i] * page_bytes), staging(worker) + i * page_bytes,
                         marks(worker) + i * mark_bytes);
        return 0;
    }
    int adopt(unsigned worker, const std::vector<std::uint64_t>& numbers,
              std::uint64_t bytes) override {
        for (std::size_t i = 0; i < numbers.size(); ++i)
            adopt_page(lane{}, base_.at(numbers[i] * page_bytes), staging(worker) + i * page_bytes,
                       part_of_page(bytes, i));
        return 0;
    }
    int read_back(unsigned worker, const std::vector<staged_run>& runs) override {
        for (const staged_run& run : runs)
            std::copy_n(settled() + run.number * page_bytes, run.count * page_bytes,
                        staging(worker) + run.slot * page_bytes);
        return 0;
    }
    [[nodiscard]] const std::byte* settled() const override {
        return base_.at(0) == nullptr ? replica_.at(0) : base_.at(0);
    }
    host::device_link show_to(const region_memory& reader) override {
        if (reader.gpu()) return {host::link_kind::none, "one of them is on a GPU"};
        return {host::link_kind::same_memory, "both are in memory of the process"};
    }
    std::int64_t prefer(std::uint64_t begin, std::uint64_t end, void*) override {
        return static_cast<std::int64_t>(end - begin);
    }
    void used(const std::vector<std::uint64_t>&) override {}
    std::int64_t promote(void*) override { return 0; }
    int changed_pages(void*, std::uint64_t first, std::uint64_t end,
                      std::vector<std::uint64_t>& out) override {
        out.clear();
        if (base_.at(0) == nullptr) return 0;
        for (std::uint64_t page = first; page < end; ++page)
            if (is_changed(lane{}, replica_.at(page * page_bytes), base_.at(page * page_bytes)))
                out.push_back(page);
        return 0;
    }

private:
    unsigned workers_ = 2;
    std::uint64_t pages_ = 0;
    host::anonymous_memory replica_, base_, staging_;
};

}  // namespace

std::unique_ptr<region_memory> make_cpu_memory(const memory_shape& shape, status& why) {
    auto memory = std::make_unique<cpu_memory>();
    if (memory->take(shape)) return memory;
    why = {-ENOMEM, "the system gives no " + std::to_string(shape.pages * page_bytes) +
                        " bytes of address space"};
    return nullptr;
}

std::unique_ptr<mapping_reader> make_cpu_reader() { return std::make_unique<mapping_reader>(); }

}  // namespace penstock::region
