# The command line: docker build -t privopt . && docker run --rm -v "$PWD:/data" privopt fit people.csv --help
FROM python:3.13-slim AS build
COPY . /source
RUN pip install --no-cache-dir --prefix=/install -c /source/constraints.txt "/source[report]"

FROM python:3.13-slim
COPY --from=build /install /usr/local
RUN useradd --create-home privopt
USER privopt
WORKDIR /data
ENTRYPOINT ["privopt"]
CMD ["--help"]
