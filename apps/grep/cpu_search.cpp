// Baseline: all cores, plain reads.
#include <vector>

#include "common/threads.hpp"
#include "count_job.hpp"
#include "methods.hpp"
#include "penstock/group/lane.hpp"
#include "pread_source.hpp"

namespace penstock::grep {

namespace {

void work(const search_view& view, std::uint64_t number) {
    const lane one{};
    const tally t(view, number);
    while (!was_interrupted()) {
        const std::uint64_t taken = take_job(view);
        if (taken >= view.job_count) return;
        const auto job_index = static_cast<std::uint32_t>(taken);
        if (is_settled(view, job_index)) {
            view.status[job_index] = 0;
            continue;
        }
        const std::uint32_t index = view.jobs[job_index].file;
        const plain_file file(view.paths + view.path_at[index], view.file_bytes[index]);
        int code = file.code();
        if (code == 0) {
            pread_source source{file, view.file_bytes[index], t.text, view.layout.text_bytes};
            code = count_job(one, view, t, source, job_index);
        }
        view.status[job_index] = code;
    }
}

class cpu_search final : public search_method {
public:
    cpu_search() : search_method(apps::make_host_memory()) {}

private:
    status launch(const search_view& view, const std::vector<job>&, std::uint64_t groups) override {
        apps::on_threads(static_cast<std::uint32_t>(groups),
                         [&view](std::uint32_t i) { work(view, i); });
        return was_interrupted() ? status{-ECANCELED, error_text(-ECANCELED)} : status{};
    }
};

}  // namespace

std::unique_ptr<search_method> make_cpu_search() { return std::make_unique<cpu_search>(); }

search_limits cpu_limits(std::uint32_t threads) { return {threads, std::uint64_t{1} << 18, 0}; }

}  // namespace penstock::grep
