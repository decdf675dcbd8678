// Which jobs of penstock-grep are run again, and by how many groups: by a method that is played.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <vector>

#include "apps/grep/search.hpp"
#include "unit/support.hpp"

namespace {

using namespace penstock;
using namespace penstock::grep;
using penstock::test::temporary_folder;

// Three pieces, of which the first says `code` until `is_enough` is true.
struct played_search {
    temporary_folder folder;
    file_list files;
    dictionary words;
    search_method by;
    counted_files counted;
    std::vector<std::uint64_t> groups;  // of each launch

    template <typename IsEnough>
    played_search(std::int32_t code, const IsEnough& is_enough) {
        std::ofstream(folder / "text") << std::string(90, 'a');
        std::ofstream(folder / "words") << "a.a\n";
        EXPECT_TRUE(load_dictionary(folder / "words", true, words).ok());
        EXPECT_TRUE(find_files({folder / "text"}, files).ok());
        by.memory = apps::make_host_memory();
        by.groups = 4;
        by.launch = [this, code, is_enough](const search_view& view, const std::vector<job>& jobs,
                                            std::uint64_t launched) {
            groups.push_back(launched);
            for (std::size_t i = 0; i < jobs.size(); ++i)
                view.status[i] = jobs[i].begin == 0 && !is_enough() ? code : 0;
            return status{};
        };
    }
    void run() {
        file_search search(by, words, files);
        ASSERT_TRUE(search.prepare(1 << 20).ok());
        const status ended = search.count(30, counted);
        ASSERT_TRUE(ended.ok()) << ended.message;
    }
};

}  // namespace

TEST(grep_schedule, more_text_is_asked_for_as_long_as_there_is_room) {
    int steps = 0;
    played_search played(needs_more_text, [&] { return steps == 7; });
    played.by.look_further = [&] { return ++steps <= 7; };
    played.run();
    EXPECT_TRUE(played.counted.errors.empty());
    EXPECT_EQ(played.counted.launches, 8u);
    EXPECT_EQ(played.groups, (std::vector<std::uint64_t>{3, 1, 1, 1, 1, 1, 1, 1}));
}

// Also where nothing else is left to be done.
TEST(grep_schedule, a_chain_longer_than_all_room_leaves_its_file_out) {
    int steps = 0;
    played_search played(needs_more_text, [] { return false; });
    played.by.look_further = [&] { return ++steps <= 3; };
    played.run();
    ASSERT_EQ(played.counted.errors.size(), 1u);
    EXPECT_EQ(played.counted.errors[0].code, -EFBIG);
    EXPECT_EQ(played.counted.launches, 4u);
}

TEST(grep_schedule, crowded_jobs_are_run_by_fewer_groups) {
    int launches = 0;
    played_search played(-ENOBUFS, [&] { return ++launches == 3; });
    played.run();
    EXPECT_EQ(played.groups, (std::vector<std::uint64_t>{3, 1}));
    ASSERT_EQ(played.counted.errors.size(), 1u) << "one group is all that there is";
    EXPECT_EQ(played.counted.errors[0].code, -ENOBUFS);
}
