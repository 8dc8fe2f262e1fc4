"""Identifiers that a step's text can't have for a value: words of C, and what its file uses."""

from __future__ import annotations

WORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while _Bool _Complex
_Imaginary asm typeof bool true false
"""
USED = """
a b bits bits_of block built_in c cell choose copysign copysignf cos cosf e fabs fabsf factor fma fmaf gradients
i j k lanes lanes2 main memcpy memset n panel part parts real real_of s sin sinf size_t sqrt sqrtf steps t total
uint32_t uint64_t v vec w weights wide
"""
# macros: of the file, of the headers of C99 that files read, and what compilers for Unix define
REPLACED = """
ADD_PRODUCT ADD_WIDE ALIGNED BUFSIZ EOF FILENAME_MAX FMA FOPEN_MAX HUGE_VAL HUGE_VALF HUGE_VALL INFINITY INLINE
LANES LOAD MATH_ERREXCEPT MATH_ERRNO MB_CUR_MAX NAN NULL RAND_MAX SEEK_CUR SEEK_END SEEK_SET STORE TMP_MAX errno
i386 linux VECTOR ZERO ZERO_WIDE math_errhandling stderr stdin stdout unix
"""
# what headers of C99 that files read declare; and of math.h each with f and l behind it
OF_MATH = """
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh drem erf erfc exp exp10 exp2 expm1 fabs fdim
finite floor fma fmax fmin fmod frexp gamma hypot ilogb isinf isnan j0 j1 jn ldexp lgamma llrint llround log log10
log1p log2 logb lrint lround modf nan nearbyint nextafter nexttoward pow pow10 remainder remquo rint round scalb
scalbln scalbn significand signgam sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn
"""
OF_OTHERS = """
FILE abort abs alloca atexit atof atoi atol atoll bsearch bcmp bcopy bzero calloc clearenv clearerr ctermid div
dprintf drand48 exit fclose fdopen feof ferror fflush ffs fgetc fgetpos fgets fileno fopen fprintf fputc fputs fread
free freopen fscanf fseek fsetpos ftell fwrite getc getchar getdelim getenv getline getloadavg gets getw index
initstate isnormal isfinite labs llabs ldiv lldiv malloc mblen memccpy memchr memcmp memcpy memmem memmove memset
mkdtemp mkstemp mktemp pclose perror popen printf putc putchar putenv puts putw qsort rand random realloc realpath
remove rename rewind rindex scanf select setbuf setenv setlinebuf setstate setvbuf signbit snprintf sprintf srand
srandom sscanf stpcpy strcasecmp strcat strchr strcmp strcoll strcpy strcspn strdup strerror strlen strncat strncmp
strncpy strndup strpbrk strrchr strsep strsignal strspn strstr strtod strtof strtok strtol strtold strtoll strtoul
strtoull strxfrm system tempnam tmpfile tmpnam ungetc unsetenv valloc vfprintf vfscanf vprintf vscanf vsnprintf
vsprintf vsscanf wctomb
"""
# at the level of a file, in those that are written
OF_FILES = """
backward_step begun bits_of built_in choose compare drawn forward_step found gradients lanes lanes2 letters main model
pack part real real_of symbols tape uniform vec weights weights_in wide
"""
KEYWORDS, OURS, MACROS = frozenset(WORDS.split()), frozenset(USED.split()), frozenset(REPLACED.split())
# what the name of a program can't be
DECLARED = frozenset(
    {
        *KEYWORDS,
        *MACROS,
        *OF_OTHERS.split(),
        *OF_FILES.split(),
        *(n + e for n in OF_MATH.split() for e in ("", "f", "l")),
    }
)
