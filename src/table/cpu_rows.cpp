#include "table/cpu_rows.hpp"

#include "files/file_registry.hpp"
#include "os/env.hpp"
#include "penstock/engine/through.hpp"

namespace penstock::host {

namespace {

constexpr int unknown = -2;

// So many rows are read past the cache until one of them enters it.
constexpr std::uint64_t rows_until_entry = 1024;

}  // namespace

cpu_rows::cpu_rows(const runtime_ref& fs, environment& env, file_registry& files,
                   const table_job& job)
    : fs_(fs),
      env_(env),
      files_(files),
      job_(job),
      handles_(job.table.run_count),
      fds_(job.table.run_count) {
    for (std::atomic<int>& fd : fds_) fd.store(unknown, std::memory_order_relaxed);
}

int cpu_rows::handle_of(std::uint64_t run) {
    // Acquire: pairs with the release below, after which the handle is held.
    if (const int fd = fds_[run].load(std::memory_order_acquire); fd != unknown) return fd;
    const std::lock_guard lock(mutex_);
    if (const int fd = fds_[run].load(std::memory_order_relaxed); fd != unknown) return fd;
    const engine::file_handle& file = job_.table.runs[run].file;
    std::uint64_t size = 0;
    const int code = files_.handle_of(file.slot, file.generation, handles_[run], size);
    const int fd = code == 0 ? handles_[run]->fd() : -1;
    fds_[run].store(fd, std::memory_order_release);
    return fd;
}

bool cpu_rows::read_past(const engine::row_source& source, std::uint64_t run, std::byte* to,
                         std::uint64_t turn) {
    const engine::cache_view& c = fs_.view;
    const engine::file_handle& f = *source.file;
    const std::uint64_t bytes = job_.table.row_bytes, first = source.at >> c.page_shift,
                        pages = ((source.at + bytes - 1) >> c.page_shift) - first + 1;
    if (turn % rows_until_entry == 0 || pages > engine::most_through_pages ||
        engine::is_granted(c, f.slot) || engine::stop_code(c) != 0)
        return false;
    engine::page_word seen[engine::most_through_pages];
    for (std::uint64_t i = 0; i < pages; ++i) {
        seen[i] = engine::absence_of(c, f, first + i);
        if (!engine::may_read_past(seen[i])) return false;
    }
    const int fd = handle_of(run);
    if (fd < 0) return false;
    engine::end_load_for_read();  // the words were absent before a byte is read
    if (env_.read(fd, to, bytes, source.at) != static_cast<std::int64_t>(bytes)) return false;
    engine::begin_recheck();  // the bytes were read before the words are looked at again
    for (std::uint64_t i = 0; i < pages; ++i)
        if (!engine::same_frame(engine::absence_of(c, f, first + i), seen[i])) return false;
    engine::count(lane{}, c, engine::count_through_reads, pages);
    return true;
}

void cpu_rows::deliver(std::uint64_t begin, std::uint64_t end) {
    const engine::table_view& t = job_.table;
    const std::uint64_t turn = mix64(lane{}.now_ns()) % rows_until_entry;
    for (std::uint64_t i = begin; i < end; ++i) {
        const engine::row_source source = engine::source_of(t, job_.list, i);
        std::byte* const to = job_.memory + i * job_.stride_bytes;
        if (source.is == engine::row_source::in_file) {
            const auto row = static_cast<std::uint64_t>(job_.list.at(i));
            if (read_past(source, engine::run_number(t, row), to, turn + i)) continue;
        }
        engine::deliver_list(lane{}, fs_.view, t, job_.list, job_.memory, job_.stride_bytes, i,
                             i + 1, job_.count);
    }
}

}  // namespace penstock::host
