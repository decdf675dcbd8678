// A process of its own that shares its cache, for the tests that kill and stop such processes.
//
//   penstock_share_process read FOLDER FILES PAGES SEED     reads pages of FOLDER/0 and on at
//       random, in each of its caches (PENSTOCK_TEST_CACHES), by several threads, and compares them
//       with their pattern. Says "linked" once it has a neighbour in another process, and reports
//       when standard input ends
//   penstock_share_process rewrite FOLDER VERSIONS          writes FOLDER/versions VERSIONS times
//       over, each time all of it, and reports
//   penstock_share_process follow FOLDER                    reads FOLDER/versions again and again:
//       no word goes back to an earlier version
//
// The report: WRONG READS FROM_NEIGHBOURS LONGEST_MS
#include "fault/share_roles.hpp"

namespace penstock::test {
namespace {

void read_some(runtime& rt, std::mt19937_64& random, std::uint64_t files, std::uint64_t pages,
               findings& found) {
    std::uint64_t words[2 * words_per_page];
    const std::uint64_t file = random() % files, first = random() % (pages - 1);
    const auto device = static_cast<std::uint32_t>(random() % rt.device_count());
    const runtime_ref fs = rt.ref(device);
    const std::uint64_t begin_ns = detail::host_now_ns();
    const int fd = open(lane{}, fs, std::to_string(file).c_str());
    if (fd == -ENFILE || fd == -ENOMEM) return;
    const std::int64_t code = fd < 0 ? fd
                                     : read(lane{}, fs, fd, words, sizeof words,
                                            static_cast<std::int64_t>(first * share_page_bytes));
    if (code != sizeof words) ++found.wrong;
    else
        for (std::uint64_t i = 0; i < 2 * words_per_page; ++i)
            found.wrong += words[i] != pattern_word(file, first * words_per_page + i) ? 1 : 0;
    if (fd >= 0) close(lane{}, fs, fd);
    found.took(begin_ns);
    ++found.reads;
}

}  // namespace
}  // namespace penstock::test

int main(int argc, char** argv) {
    using namespace penstock::test;
    return run_share_process(
        argc, argv, penstock::backend::cpu,
        [](penstock::runtime& rt, std::uint64_t files, std::uint64_t pages, std::uint64_t seed) {
            read_role(rt, seed, [&](auto& random, auto& found) {
                read_some(rt, random, files, pages, found);
            });
        });
}
