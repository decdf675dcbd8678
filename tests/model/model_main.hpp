// The command line of the model test, shared by the real one and by the canary with a broken cache.
#pragma once

#include <cstdlib>
#include <cstring>

#include "model/model_run.hpp"

namespace penstock::model {

struct command_line {
    run_settings settings;
    std::uint64_t seeds = 1;
    bool lane = false, racing = false, wrong = false;

    command_line(int count, char** words) {
        for (int i = 1; i < count; ++i) {
            const std::string word = words[i];
            if (word == "--lane") lane = true;
            else if (word == "--racing") racing = true;
            else if (word == "--flip") settings.flip_bytes = true;
            else if (word == "--shift") settings.shift_numbers = true;
            else if (i + 1 < count) take(word, words[++i]);
            else wrong = true;
        }
        if (!lane && !racing) lane = racing = true;
    }

private:
    void take(const std::string& word, const char* text) {
        char* end = nullptr;
        const std::uint64_t value = std::strtoull(text, &end, 0);
        if (*end != '\0' || *text == '\0') wrong = true;
        else if (word == "--seed") settings.seed = value;
        else if (word == "--seeds") seeds = value;
        else if (word == "--operations") settings.operations = value;
        else if (word == "--threads") settings.threads = static_cast<std::uint32_t>(value);
        else if (word == "--page") settings.page_bytes = value;
        else if (word == "--caches" && value > 0)
            settings.caches = static_cast<std::uint32_t>(value);
        else wrong = true;
    }
};

inline int usage(const char* program) {
    std::cerr << "usage: " << program
              << " [--seed N] [--seeds N] [--operations N] [--threads N] [--page BYTES] [--caches "
                 "N] [--lane] "
                 "[--racing] [--flip] [--shift]\n"
                 "Performs random operations on tiny caches and checks every byte. --seeds runs so "
                 "many seeds from --seed on;\n"
                 "--flip makes the disk lie now and then, --shift asks for other rows of a table "
                 "than it expects,\nand the run must then fail.\n";
    return 2;
}

}  // namespace penstock::model
