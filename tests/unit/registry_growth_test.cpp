// What the file registry does and keeps for each open, with many versions of a file behind it.
// Steps and bytes are counted here, so the machine's speed does not matter.
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "fault/faulty_environment.hpp"
#include "files/file_registry.hpp"
#include "hub/hub.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

using host::file_registry;
using host::open_reply;

// Another program changes each file whenever `version` grows.
class changing_files final : public fault::faulty_environment {
public:
    int facts(int handle, host::file_facts& out) override {
        const int code = faulty_environment::facts(handle, out);
        out.identity.modified_ns += version;
        out.identity.changed_ns += version;
        out.made_ns = 1;  // on every file system
        return code;
    }
    std::int64_t version = 0;
};

class registry_growth : public testing::Test {
protected:
    static constexpr std::uint32_t versions = 200;

    void SetUp() override {
        write_file(root / "a", pattern(1, 5000));
        host::registry_limits limits{2 * versions, 12, 4, 1 << 16, 256, 100};
        limits.writable = true;
        files = std::make_unique<file_registry>(env, shared, limits);
        ASSERT_TRUE(files->set_roots({root.path()}).ok());
    }
    open_reply must_open(const std::string& name) {
        const open_reply reply = files->open(name, 0, 0);
        EXPECT_EQ(reply.result, 0) << name;
        return reply;
    }
    // A group has each of them open.
    std::vector<open_reply> open_all_versions() {
        std::vector<open_reply> out;
        for (std::uint32_t i = 0; i < versions; ++i, ++env.version) out.push_back(must_open("a"));
        return out;
    }

    // Nothing is read, and no handle is left.
    void make_and_allow(const std::string& path) {
        ::close(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
        EXPECT_EQ(files->allow(path, open_read_write), 0) << path;
    }
    // What a call adds to the memory of this process; 0 where a sanitizer replaces the allocator.
    template <typename Call>
    static std::int64_t bytes_kept_by(const Call& call) {
        const auto allocated = [] {
            const struct mallinfo2 all = ::mallinfo2();
            return static_cast<std::int64_t>(all.uordblks + all.hblkhd);
        };
        const std::int64_t before = allocated();
        call();
        return allocated() - before;
    }

    temporary_folder outside, root;
    changing_files env;
    host::hub shared;
    std::unique_ptr<file_registry> files;
};

}  // namespace

TEST_F(registry_growth, an_open_looks_at_no_older_version_without_need) {
    open_all_versions();
    EXPECT_EQ(files->live_files(), versions);
    must_open("a");
    EXPECT_EQ(files->older_looks(), 0u);
}

TEST_F(registry_growth, versions_are_retired_without_a_look_at_the_others) {
    for (const open_reply& version : open_all_versions())
        EXPECT_EQ(files->retire(version.slot, version.generation), 0);
    EXPECT_EQ(files->live_files(), 0u);
    EXPECT_EQ(files->older_looks(), 0u);
}

// Whichever open brings the new name: that of a changed file, or that of an unchanged one.
TEST_F(registry_growth, older_versions_get_a_new_path_once) {
    const auto all = open_all_versions();
    std::uint64_t looks = 0;
    for (const bool changes : {true, false}) {
        const std::string name = changes ? "b" : "c";
        ASSERT_EQ(::rename((root / (changes ? "a" : "b")).c_str(), (root / name).c_str()), 0);
        if (!changes) --env.version;
        for (int i = 0; i < 10; ++i, env.version += changes ? 1 : 0) must_open(name);
        for (const open_reply& version : all)
            EXPECT_EQ(files->path_of(version.slot, version.generation), root / name);
        EXPECT_LE(files->older_looks() - looks, 2u * versions) << name;
        looks = files->older_looks();
    }
}

// A path with its node takes more than 100 bytes.
TEST_F(registry_growth, files_below_a_root_are_not_remembered_as_allowed) {
    EXPECT_LT(bytes_kept_by([&] {
                  for (int i = 0; i < 1000; ++i) {
                      const std::string path = root / ("a file of a run " + std::to_string(i));
                      make_and_allow(path);
                      ASSERT_EQ(::unlink(path.c_str()), 0);
                  }
              }),
              20'000);
}

TEST_F(registry_growth, names_that_the_host_took_away_are_not_remembered_as_allowed) {
    const std::string other = outside / "other";
    EXPECT_LT(bytes_kept_by([&] {
                  for (int i = 0; i < 1000; ++i) {
                      const std::string path = outside / ("a file of a run " + std::to_string(i));
                      make_and_allow(path);
                      if (i % 2 == 0) ASSERT_EQ(files->unlink(path, false), 0);
                      else ASSERT_EQ(files->rename(path, other, false), 0);
                  }
              }),
              20'000);
}

// By its name there may be another file later.
TEST_F(registry_growth, a_name_that_the_host_took_away_is_allowed_no_more) {
    const std::string path = outside / "file", kept = outside / "kept";
    std::filesystem::create_directory(outside / "folder");
    for (const std::string& each : {path, kept, outside / "folder/below"}) make_and_allow(each);
    ASSERT_EQ(files->unlink(path, false), 0);
    ASSERT_EQ(files->rename(outside / "folder", outside / "moved", false), 0);
    std::filesystem::create_directory(outside / "folder");
    for (const std::string& each : {path, outside / "folder/below"}) {
        write_file(each, pattern(1, 10));
        EXPECT_EQ(files->open(each, 0, 0).result, -EACCES) << each;
        EXPECT_EQ(files->unlink(each, true), -EACCES) << each;
    }
    EXPECT_EQ(files->open(kept, 0, 0).result, 0);
    // Kernels take it away and make it anew.
    ASSERT_EQ(files->unlink(kept, true), 0);
    EXPECT_EQ(files->open(kept, 0, 0, open_read_write | open_create).result, 0);
}

}  // namespace penstock::test
