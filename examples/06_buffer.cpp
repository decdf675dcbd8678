// A table of accounts in a file, and threads that move money between them: 06_buffer FILE. The
// table is larger than its place in host memory; the rest is found in GPU memory, or in ordinary
// memory without a GPU.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include <penstock/buffer.hpp>

using penstock::buffer::fixed_page;
using penstock::buffer::use_kind;

constexpr std::uint64_t pages = 1024, page_bytes = 4096, threads = 4, transfers = 5000;

std::int64_t& balance_in(const fixed_page& page) {
    return *reinterpret_cast<std::int64_t*>(page.data);
}

// Lower page first, so that no two threads wait for each other. 0 or a negative errno.
int transfer(penstock::buffer::session& session, std::uint32_t file, std::uint64_t from,
             std::uint64_t to, std::int64_t amount) {
    if (from > to) std::swap(from, to), amount = -amount;
    fixed_page a, b;
    if (const int code = session.fix({from, file}, use_kind::write, a); code != 0) return code;
    const int code = session.fix({to, file}, use_kind::write, b);
    if (code == 0) {
        balance_in(a) -= amount;
        balance_in(b) += amount;
        session.unfix(b, true);
    }
    session.unfix(a, code == 0);
    return code;
}

int main(int argc, char** argv) {
    if (argc != 2) return std::fprintf(stderr, "usage: 06_buffer FILE\n"), 2;
    const std::string name = std::string(argv[1]) + ".accounts";
    std::ofstream(name, std::ios::binary) << std::string(pages * page_bytes, '\0');

    std::unique_ptr<penstock::buffer_pool> pool;
    std::uint32_t file = 0;
    penstock::status s = penstock::buffer_pool::make({.host_bytes = 128 * page_bytes,
                                                      .device_bytes = 512 * page_bytes,
                                                      .sessions = threads,
                                                      .fixed_pages = 2},
                                                     pool);
    if (s.ok()) s = pool->open_file(name, penstock::buffer::file_access::read_write, file);
    if (!s.ok()) return std::fprintf(stderr, "%s\n", s.message.c_str()), 1;

    std::atomic<int> failed{0};
    std::vector<std::thread> all;
    for (std::uint64_t t = 0; t < threads; ++t)
        all.emplace_back([&, t] {
            const auto session = pool->open_session();
            std::mt19937_64 random(t);
            for (std::uint64_t i = 0; i < transfers; ++i) {
                const std::uint64_t from = random() % pages, to = random() % (pages - 1);
                const int code = transfer(*session, file, from, to < from ? to : to + 1,
                                          static_cast<std::int64_t>(random() % 100));
                if (code != 0) failed = code;
            }
        });
    for (std::thread& thread : all) thread.join();
    if (const int code = pool->close_file(file); code != 0) failed = code;
    if (failed != 0)
        return std::fprintf(stderr, "%s: %s\n", name.c_str(), penstock::error_text(failed).c_str()),
               1;

    const penstock::buffer::manager_counts found = pool->counts();
    std::ifstream in(name, std::ios::binary);
    std::int64_t sum = 0, used = 0;
    for (std::uint64_t page = 0; page < pages; ++page) {
        std::int64_t balance = 0;
        in.seekg(static_cast<std::streamoff>(page * page_bytes))
            .read(reinterpret_cast<char*>(&balance), sizeof balance);
        sum += balance, used += balance != 0;
    }
    std::remove(name.c_str());
    if (sum != 0 || used == 0 || !in)
        return std::fprintf(stderr, "%s: the accounts add up to %lld, %lld of them are not 0\n",
                            name.c_str(), (long long)sum, (long long)used),
               1;
    std::printf(
        "%llu transfers, no money lost; pages found in the host %llu, in %s %llu, on the disk "
        "%llu\n",
        (unsigned long long)(threads * transfers), (unsigned long long)found.host_hits,
        pool->is_on_gpu() ? "the GPU" : "the memory that stands for a GPU's",
        (unsigned long long)found.device_hits, (unsigned long long)found.misses);
}
